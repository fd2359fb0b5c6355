//! `Region`: the file.

use std::path::PathBuf;

use pyo3::prelude::*;
use shmstats::{Region, RegionOptions};

use crate::cell::GilCell;
use crate::errors::{OrRaise, closed};
use crate::inspector::PyInspector;
use crate::primary::PyPrimary;
use crate::schema::PySchema;
use crate::server::PyServer;

/// A mapped region that this process may write to.
#[pyclass(name = "Region", module = "shmstats", frozen, weakref)]
pub(crate) struct PyRegion(GilCell<Option<Region>>);

fn options(servers: u32, slots: Option<u32>, mode: Option<u32>, uids: Vec<u32>) -> RegionOptions {
    let mut options = Region::options(servers);
    if let Some(slots) = slots {
        options = options.slots(slots);
    }
    if let Some(mode) = mode {
        options = options.mode(mode);
    }
    uids.into_iter().fold(options, RegionOptions::trust_uid)
}

impl PyRegion {
    pub(crate) fn of(region: Region) -> Self {
        PyRegion(GilCell::new(Some(region)))
    }

    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<Region> {
        self.0.borrow_mut(py).clone().ok_or_else(|| closed(py, "region"))
    }
}

#[pymethods]
impl PyRegion {
    /// Creates a region for so many servers.
    #[staticmethod]
    #[pyo3(signature = (path, schema, servers, *, slots=None, mode=None))]
    fn create(
        py: Python<'_>,
        path: PathBuf,
        schema: &PySchema,
        servers: u32,
        slots: Option<u32>,
        mode: Option<u32>,
    ) -> PyResult<Self> {
        let options = options(servers, slots, mode, Vec::new());
        options.create(path, &schema.0).or_raise(py).map(PyRegion::of)
    }

    /// Opens an existing region, whatever its schema, to write to it.
    #[staticmethod]
    #[pyo3(signature = (path, *, trust_uids=Vec::new()))]
    fn open(py: Python<'_>, path: PathBuf, trust_uids: Vec<u32>) -> PyResult<Self> {
        options(1, None, None, trust_uids).open(path).or_raise(py).map(PyRegion::of)
    }

    /// Opens the region, or creates it if there is none.
    #[staticmethod]
    #[pyo3(signature = (path, schema, servers, *, slots=None, mode=None, trust_uids=Vec::new()))]
    fn open_or_create(
        py: Python<'_>,
        path: PathBuf,
        schema: &PySchema,
        servers: u32,
        slots: Option<u32>,
        mode: Option<u32>,
        trust_uids: Vec<u32>,
    ) -> PyResult<Self> {
        let options = options(servers, slots, mode, trust_uids);
        options.open_or_create(path, &schema.0).or_raise(py).map(PyRegion::of)
    }

    /// As `open_or_create`, but where there can be no region: a warning, and a private one.
    #[staticmethod]
    #[pyo3(signature = (path, schema, servers, *, slots=None, mode=None, trust_uids=Vec::new()))]
    fn open_or_private(
        py: Python<'_>,
        path: PathBuf,
        schema: &PySchema,
        servers: u32,
        slots: Option<u32>,
        mode: Option<u32>,
        trust_uids: Vec<u32>,
    ) -> Self {
        let options = options(servers, slots, mode, trust_uids);
        let region = options.open_or_private(path, &schema.0);
        crate::log::flush(py);
        PyRegion::of(region)
    }

    /// A region that only this process can reach.
    #[staticmethod]
    fn private(schema: &PySchema, servers: u32) -> Self {
        PyRegion::of(Region::private(&schema.0, servers))
    }

    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<PathBuf> {
        Ok(self.get(py)?.path().to_path_buf())
    }

    #[getter]
    fn schema(&self, py: Python<'_>) -> PyResult<PySchema> {
        Ok(PySchema(self.get(py)?.schema().clone()))
    }

    #[getter]
    fn is_private(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.get(py)?.is_private())
    }

    #[getter]
    fn is_removed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.get(py)?.is_removed())
    }

    #[getter]
    fn server_count(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.get(py)?.server_count())
    }

    #[getter]
    fn slot_count(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.get(py)?.slot_count())
    }

    /// Claims the slot of this index, which is also the server's index.
    fn claim(&self, py: Python<'_>, index: u32) -> PyResult<PyServer> {
        let region = self.get(py)?;
        // Up to half a second for an owner that has just been killed: others may run meanwhile.
        py.detach(|| region.claim(index)).or_raise(py).map(PyServer::of)
    }

    /// Claims any free slot.
    fn claim_any(&self, py: Python<'_>) -> PyResult<PyServer> {
        let region = self.get(py)?;
        py.detach(|| region.claim_any()).or_raise(py).map(PyServer::of)
    }

    /// Claims the slot of this index, or any free one if somebody holds it.
    fn claim_preferring(&self, py: Python<'_>, index: u32) -> PyResult<PyServer> {
        let region = self.get(py)?;
        py.detach(|| region.claim_preferring(index)).or_raise(py).map(PyServer::of)
    }

    /// Takes the primary lease.
    fn primary(&self, py: Python<'_>) -> PyResult<PyPrimary> {
        self.get(py)?.primary().or_raise(py).map(PyPrimary::of)
    }

    /// An onlooker at this region.
    fn inspector(&self, py: Python<'_>) -> PyResult<PyInspector> {
        self.get(py)?.inspector().or_raise(py).map(PyInspector::of)
    }

    /// Closes this object, and removes the file if nobody else is attached to it.
    fn remove(&self, py: Python<'_>) -> PyResult<()> {
        let region = self.0.borrow_mut(py).take().ok_or_else(|| closed(py, "region"))?;
        region.remove().or_raise(py)
    }

    /// Detaches. Servers and primaries of this region go on.
    fn close(&self, py: Python<'_>) {
        self.0.borrow_mut(py).take();
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match &*self.0.borrow_mut(py) {
            Some(region) => {
                format!("<Region {} of {} servers>", region.path().display(), region.server_count())
            }
            None => "<Region, closed>".into(),
        }
    }
}

/// Where a region of this name lies by default.
#[pyfunction]
pub(crate) fn default_path(name: &str) -> PathBuf {
    shmstats::region::default_path(name)
}
