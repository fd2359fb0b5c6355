//! `Server`: the writer's side.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use shmstats::schema::ValueType;
use shmstats::{Region, Server};

use crate::cell::GilCell;
use crate::errors::OrRaise;
use crate::handles::{PyCounter, PyGauge, PySnapshot};
use crate::region::PyRegion;
use crate::schema::PySchema;
use crate::state::{Core, GaugeHandle, counter, fields, gauge, handle, key, snapshot};

/// A process that owns a slot.
#[pyclass(name = "Server", module = "shmstats", frozen, weakref)]
pub(crate) struct PyServer(Arc<GilCell<Core>>);

impl PyServer {
    pub(crate) fn of(server: Server) -> Self {
        PyServer(Arc::new(GilCell::new(Core::of(server))))
    }
}

#[pymethods]
impl PyServer {
    /// The server that its launcher meant this process to be; warns and counts privately where
    /// that cannot be.
    #[staticmethod]
    fn from_env(py: Python<'_>, schema: &PySchema) -> Self {
        let server = Server::from_env(&schema.0);
        crate::log::flush(py);
        PyServer::of(server)
    }

    /// As `from_env`, with the region's path and the server's index given.
    #[staticmethod]
    #[pyo3(signature = (path, schema, index=None))]
    fn join(py: Python<'_>, path: PathBuf, schema: &PySchema, index: Option<u32>) -> Self {
        let server = Server::join(path, index, &schema.0);
        crate::log::flush(py);
        PyServer::of(server)
    }

    /// As `from_env`, but raises.
    #[staticmethod]
    fn try_from_env(py: Python<'_>, schema: &PySchema) -> PyResult<Self> {
        Server::try_from_env(&schema.0).or_raise(py).map(PyServer::of)
    }

    /// A server that counts for itself.
    #[staticmethod]
    fn private(schema: &PySchema) -> Self {
        PyServer::of(Server::private(&schema.0))
    }

    /// The counter of this name and these labels.
    #[pyo3(signature = (name, labels=None))]
    fn counter(
        &self,
        py: Python<'_>,
        name: &str,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyCounter> {
        let key = key(name, labels)?;
        let place = {
            let mut core = self.0.borrow_mut(py);
            let server = core.server(py)?;
            handle(&mut core.counters, key, |key| counter(&server, key))
        };
        Ok(PyCounter { core: self.0.clone(), place: place.or_raise(py)? })
    }

    /// The gauge of this name and these labels.
    #[pyo3(signature = (name, labels=None))]
    fn gauge(
        &self,
        py: Python<'_>,
        name: &str,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyGauge> {
        let key = key(name, labels)?;
        let place = {
            let mut core = self.0.borrow_mut(py);
            let server = core.server(py)?;
            handle(&mut core.gauges, key, |key| gauge(&server, key)).map(|place| {
                let value_type = match core.gauges[place].1 {
                    GaugeHandle::U64(_) => ValueType::U64,
                    GaugeHandle::I64(_) => ValueType::I64,
                    GaugeHandle::F64(_) => ValueType::F64,
                };
                (place, value_type)
            })
        };
        let (place, value_type) = place.or_raise(py)?;
        Ok(PyGauge { core: self.0.clone(), place, value_type })
    }

    /// The snapshot of this name and these labels.
    #[pyo3(signature = (name, labels=None))]
    fn snapshot(
        &self,
        py: Python<'_>,
        name: &str,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PySnapshot> {
        let key = key(name, labels)?;
        let place = {
            let mut core = self.0.borrow_mut(py);
            let server = core.server(py)?;
            handle(&mut core.snapshots, key, |key| snapshot(&server, key)).and_then(|place| {
                let (key, snapshot) = &core.snapshots[place];
                Ok((place, fields(&server, key, snapshot)?))
            })
        };
        let (place, fields) = place.or_raise(py)?;
        Ok(PySnapshot { core: self.0.clone(), place, fields })
    }

    /// The region this server counts in.
    #[getter]
    fn region(&self, py: Python<'_>) -> PyResult<PyRegion> {
        let region: Region = self.0.borrow_mut(py).server(py)?.region().clone();
        Ok(PyRegion::of(region))
    }

    /// The index of its slot.
    #[getter]
    fn slot(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.0.borrow_mut(py).server(py)?.slot())
    }

    /// Its index among the configured servers, if it has one.
    #[getter]
    fn index(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        Ok(self.0.borrow_mut(py).server(py)?.index())
    }

    /// Notes that the server is alive, for onlookers.
    fn heartbeat(&self, py: Python<'_>) {
        let mut core = self.0.borrow_mut(py);
        core.wake();
        if let Some(server) = &core.server {
            server.heartbeat();
        }
    }

    /// Gives the slot back. Its handles count nothing any more.
    fn close(&self, py: Python<'_>) {
        let mut core = self.0.borrow_mut(py);
        core.counters.clear();
        core.gauges.clear();
        core.snapshots.clear();
        core.server = None;
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match &self.0.borrow_mut(py).server {
            Some(server) => {
                format!(
                    "<Server in slot {} of {}>",
                    server.slot(),
                    server.region().path().display()
                )
            }
            None => "<Server, closed>".into(),
        }
    }
}
