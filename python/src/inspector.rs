//! `Inspector`: the read-only side.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use shmstats::schema::Kind;
use shmstats::{Inspector, Observation, Owner, Totals};

use crate::cell::GilCell;
use crate::errors::{OrRaise, closed};
use crate::primary::{ids, state_name, value_object};
use crate::schema::{PySchema, find, series};

/// An onlooker at a region.
#[pyclass(name = "Inspector", module = "shmstats", frozen, weakref)]
pub(crate) struct PyInspector(GilCell<Option<Inspector>>);

impl PyInspector {
    pub(crate) fn of(inspector: Inspector) -> Self {
        PyInspector(GilCell::new(Some(inspector)))
    }

    fn with<T>(&self, py: Python<'_>, f: impl FnOnce(&mut Inspector) -> T) -> PyResult<T> {
        let mut inspector = self.0.borrow_mut(py);
        inspector.as_mut().map(f).ok_or_else(|| closed(py, "inspector"))
    }
}

#[pymethods]
impl PyInspector {
    /// Opens a region to look at it. Needs permission to read and nothing else.
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Inspector::open(path).or_raise(py).map(PyInspector::of)
    }

    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<PathBuf> {
        self.with(py, |inspector| inspector.path().to_path_buf())
    }

    #[getter]
    fn schema(&self, py: Python<'_>) -> PyResult<PySchema> {
        self.with(py, |inspector| PySchema(inspector.schema().clone()))
    }

    #[getter]
    fn server_count(&self, py: Python<'_>) -> PyResult<u32> {
        self.with(py, |inspector| inspector.region().server_count)
    }

    #[getter]
    fn slot_count(&self, py: Python<'_>) -> PyResult<u32> {
        self.with(py, |inspector| inspector.region().slot_count)
    }

    /// Whether the file still has its name.
    #[getter]
    fn is_at_its_path(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |inspector| inspector.is_at_its_path())
    }

    /// What was counted in all since the region was created.
    fn totals(&self, py: Python<'_>) -> PyResult<PyTotals> {
        self.with(py, |inspector| PyTotals {
            totals: inspector.totals().clone(),
            schema: inspector.schema().clone(),
            slots: inspector.region().slot_count as usize,
        })
    }

    /// Gauges, owners and the region's own health, as of now.
    fn observe(&self, py: Python<'_>) -> PyResult<PyObservation> {
        let observed = self.with(py, |inspector| {
            let observation = inspector.observe()?;
            Ok(PyObservation { observation, schema: inspector.schema().clone() })
        })?;
        observed.or_raise(py)
    }

    fn close(&self, py: Python<'_>) {
        self.0.borrow_mut(py).take();
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}

/// What was counted since the region was created.
#[pyclass(name = "Totals", module = "shmstats", frozen)]
pub(crate) struct PyTotals {
    totals: Totals,
    schema: shmstats::Schema,
    slots: usize,
}

#[pymethods]
impl PyTotals {
    /// The total under this name, over all servers, and all label sets unless one is named.
    #[pyo3(signature = (name, labels=None))]
    fn get(&self, py: Python<'_>, name: &str, labels: Option<&Bound<'_, PyDict>>) -> PyResult<u64> {
        let ids = find(py, &self.schema, name, labels)?;
        Ok(ids.into_iter().fold(0, |sum, id| sum.wrapping_add(self.totals.of(id))))
    }

    /// The same in one slot, over all its owners.
    #[pyo3(signature = (slot, name, labels=None))]
    fn in_slot(
        &self,
        py: Python<'_>,
        slot: usize,
        name: &str,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        if slot >= self.slots {
            return Err(crate::errors::raise(py, "NoSuchSlotError", format!("no slot {slot}")));
        }
        let ids = find(py, &self.schema, name, labels)?;
        Ok(ids.into_iter().fold(0, |sum, id| sum.wrapping_add(self.totals.in_slot(slot, id))))
    }

    /// Of that, what no drain has taken yet.
    #[pyo3(signature = (name, labels=None))]
    fn pending(
        &self,
        py: Python<'_>,
        name: &str,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        let ids = find(py, &self.schema, name, labels)?;
        Ok(ids.into_iter().fold(0, |sum, id| sum.wrapping_add(self.totals.pending(id))))
    }

    /// Whether all of it is sure; if not, a primary is stopped in the middle of a drain.
    #[getter]
    fn settled(&self) -> bool {
        self.totals.all_settled()
    }

    /// Every counter's total, by `name{labels}`.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (id, record) in ids(&self.schema) {
            if matches!(record.kind, Kind::Counter(_)) {
                dict.set_item(series(record), self.totals.of(id))?;
            }
        }
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        format!("<Totals{}>", if self.settled() { "" } else { ", not settled" })
    }
}

/// A region's gauges, owners and health at one time.
#[pyclass(name = "Observation", module = "shmstats", frozen)]
pub(crate) struct PyObservation {
    observation: Observation,
    schema: shmstats::Schema,
}

#[pymethods]
impl PyObservation {
    /// How each slot stands: `free`, `alive`, `dead` or `released`.
    #[getter]
    fn states(&self) -> Vec<&'static str> {
        self.observation.states.iter().map(|state| state_name(*state)).collect()
    }

    /// Who claimed each slot last.
    #[getter]
    fn owners(&self) -> Vec<PyOwner> {
        self.observation.owners.iter().map(|owner| PyOwner(*owner)).collect()
    }

    /// Whether somebody is primary.
    #[getter]
    fn primary_alive(&self) -> bool {
        self.observation.primary.alive
    }

    /// The pid of who is, or was last, primary, by its own account.
    #[getter]
    fn primary_pid(&self) -> u64 {
        self.observation.primary.pid
    }

    /// How often counters were drained.
    #[getter]
    fn drains(&self) -> u64 {
        self.observation.primary.drains
    }

    /// Servers that found no free slot.
    #[getter]
    fn refused_servers(&self) -> u64 {
        self.observation.refused_servers
    }

    /// Drains that a primary died in.
    #[getter]
    fn interrupted_drains(&self) -> u64 {
        self.observation.interrupted_drains
    }

    /// Writes that were not done: by forked children, or of NaN.
    #[getter]
    fn skipped_writes(&self) -> u64 {
        self.observation.skipped_writes
    }

    /// A gauge of one record, rolled up over servers; None if none has a value.
    #[pyo3(signature = (name, labels=None))]
    fn gauge(
        &self,
        py: Python<'_>,
        name: &str,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<f64>> {
        let empty = PyDict::new(py);
        let ids = find(py, &self.schema, name, Some(labels.unwrap_or(&empty)))?;
        Ok(ids.first().and_then(|id| self.observation.gauge_of(*id)))
    }

    /// Every gauge that has a value, rolled up over servers, by `name{labels}`.
    #[getter]
    fn gauges<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (id, record) in ids(&self.schema) {
            let value = self.observation.gauge_of(id);
            if let (Kind::Gauge(_), Some(value)) = (record.kind, value) {
                dict.set_item(series(record), value)?;
            }
        }
        Ok(dict)
    }

    /// The gauges of one slot's server, by `name{labels}`.
    fn gauges_of_slot<'py>(&self, py: Python<'py>, slot: usize) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        if slot >= self.observation.states.len() {
            return Err(crate::errors::raise(py, "NoSuchSlotError", format!("no slot {slot}")));
        }
        for (id, record) in ids(&self.schema) {
            if let Some(value) = self.observation.gauge_in(slot, id) {
                dict.set_item(series(record), value_object(py, value)?)?;
            }
        }
        Ok(dict)
    }
}

/// Who claimed a slot last, by its own account.
#[pyclass(name = "Owner", module = "shmstats", frozen)]
pub(crate) struct PyOwner(Owner);

#[pymethods]
impl PyOwner {
    #[getter]
    fn pid(&self) -> u64 {
        self.0.pid
    }

    #[getter]
    fn generation(&self) -> u64 {
        self.0.generation
    }

    #[getter]
    fn server_index(&self) -> Option<u64> {
        self.0.server_index
    }

    /// Seconds since it claimed the slot.
    #[getter]
    fn claimed(&self) -> Option<f64> {
        self.0.claimed.map(|age| age.as_secs_f64())
    }

    /// Seconds since it last published or ticked.
    #[getter]
    fn heard(&self) -> Option<f64> {
        self.0.heard.map(|age| age.as_secs_f64())
    }

    fn __repr__(&self) -> String {
        format!("<Owner pid {}>", self.0.pid)
    }
}
