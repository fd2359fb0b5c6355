//! `Primary` and what it returns.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use shmstats::schema::Kind;
use shmstats::{Interval, Primary, SlotState, Value};

use crate::cell::GilCell;
use crate::errors::{OrRaise, closed};
use crate::schema::{find, series};

pub(crate) fn state_name(state: SlotState) -> &'static str {
    match state {
        SlotState::Free => "free",
        SlotState::Alive => "alive",
        SlotState::Dead => "dead",
        SlotState::Released => "released",
        _ => "unknown",
    }
}

pub(crate) fn value_object(py: Python<'_>, value: Value) -> PyResult<Py<PyAny>> {
    Ok(match value {
        Value::U64(n) => n.into_pyobject(py)?.into_any().unbind(),
        Value::I64(n) => n.into_pyobject(py)?.into_any().unbind(),
        Value::F64(x) => x.into_pyobject(py)?.into_any().unbind(),
    })
}

/// The holder of the primary lease.
#[pyclass(name = "Primary", module = "shmstats", frozen, weakref)]
pub(crate) struct PyPrimary(GilCell<Option<Primary>>);

impl PyPrimary {
    pub(crate) fn of(primary: Primary) -> Self {
        PyPrimary(GilCell::new(Some(primary)))
    }

    fn with<T>(&self, py: Python<'_>, f: impl FnOnce(&mut Primary) -> T) -> PyResult<T> {
        let mut primary = self.0.borrow_mut(py);
        primary.as_mut().map(f).ok_or_else(|| closed(py, "primary"))
    }
}

#[pymethods]
impl PyPrimary {
    /// Reads and resets all counters, and reads the gauges.
    fn drain(&self, py: Python<'_>) -> PyResult<PyInterval> {
        self.with(py, |primary| PyInterval(primary.drain()))
    }

    /// What a drain would return now, without resetting anything.
    fn peek(&self, py: Python<'_>) -> PyResult<PyInterval> {
        self.with(py, |primary| PyInterval(primary.peek()))
    }

    /// Asks the kernel who is alive; the state of each slot.
    fn probe(&self, py: Python<'_>) -> PyResult<Vec<&'static str>> {
        let states = self.with(py, |primary| {
            let states = primary.probe()?;
            Ok(states.iter().map(|state| state_name(*state)).collect())
        })?;
        states.or_raise(py)
    }

    /// Forgets pending counts and hides all gauges. Totals stay.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Primary::reset)
    }

    /// Lets another process be primary.
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

/// What happened between one drain and the one before it.
#[pyclass(name = "Interval", module = "shmstats", frozen)]
pub(crate) struct PyInterval(pub(crate) Interval);

#[pymethods]
impl PyInterval {
    /// Which drain of the region this is, counted from 1.
    #[getter]
    fn number(&self) -> u64 {
        self.0.number()
    }

    /// Seconds since the last drain, by whichever primary.
    #[getter]
    fn elapsed(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }

    /// How many servers were configured.
    #[getter]
    fn server_count(&self) -> u32 {
        self.0.server_count()
    }

    /// How each slot stood at the last probe.
    #[getter]
    fn states(&self) -> Vec<&'static str> {
        self.0.states().iter().map(|state| state_name(*state)).collect()
    }

    /// Whether nothing was counted.
    #[getter]
    fn is_idle(&self) -> bool {
        self.0.is_idle()
    }

    /// What was counted under this name, over all servers, and all label sets unless one is named.
    #[pyo3(signature = (name, labels=None))]
    fn delta(
        &self,
        py: Python<'_>,
        name: &str,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        let ids = find(py, self.0.schema(), name, labels)?;
        Ok(ids.into_iter().fold(0, |sum, id| sum.wrapping_add(self.0.delta_of(id))))
    }

    /// What one slot's server counted.
    #[pyo3(signature = (slot, name, labels=None))]
    fn delta_in(
        &self,
        py: Python<'_>,
        slot: usize,
        name: &str,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        if slot >= self.0.states().len() {
            return Err(crate::errors::raise(py, "NoSuchSlotError", format!("no slot {slot}")));
        }
        let ids = find(py, self.0.schema(), name, labels)?;
        Ok(ids.into_iter().fold(0, |sum, id| sum.wrapping_add(self.0.delta_in(slot, id))))
    }

    /// `delta` per second; 0.0 if no time has passed.
    #[pyo3(signature = (name, labels=None))]
    fn rate(
        &self,
        py: Python<'_>,
        name: &str,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<f64> {
        let delta = self.delta(py, name, labels)? as f64;
        let elapsed = self.elapsed();
        Ok(if elapsed > 0.0 { delta / elapsed } else { 0.0 })
    }

    /// The part that one counter has in another, between 0 and 1; None if that counted nothing.
    fn ratio(&self, py: Python<'_>, part: &str, whole: &str) -> PyResult<Option<f64>> {
        let (part, whole) = (self.delta(py, part, None)?, self.delta(py, whole, None)?);
        Ok((whole > 0).then(|| (part as f64 / whole as f64).min(1.0)))
    }

    /// A gauge rolled up as its record says; None if no server has a value.
    #[pyo3(signature = (name, labels=None))]
    fn gauge(
        &self,
        py: Python<'_>,
        name: &str,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<f64>> {
        let ids = find(py, self.0.schema(), name, labels)?;
        Ok(match ids.as_slice() {
            [only] => self.0.gauge_of(*only),
            _ => self.0.gauge(name),
        })
    }

    /// How many seconds ago the shared thing that a gauge belongs to was last published.
    #[pyo3(signature = (name, labels=None))]
    fn age(
        &self,
        py: Python<'_>,
        name: &str,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<f64>> {
        let ids = find(py, self.0.schema(), name, labels)?;
        let ages = ids.into_iter().filter_map(|id| self.0.age_of(id));
        Ok(ages.min().map(|age| age.as_secs_f64()))
    }

    /// Every counter's delta, by `name{labels}`.
    #[getter]
    fn deltas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (id, record) in ids(self.0.schema()) {
            if matches!(record.kind, Kind::Counter(_)) {
                dict.set_item(series(record), self.0.delta_of(id))?;
            }
        }
        Ok(dict)
    }

    /// Every gauge that has a value, rolled up over servers, by `name{labels}`.
    #[getter]
    fn gauges<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (id, record) in ids(self.0.schema()) {
            if let (Kind::Gauge(_), Some(value)) = (record.kind, self.0.gauge_of(id)) {
                dict.set_item(series(record), value)?;
            }
        }
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        format!("<Interval {} of {:.3} s>", self.0.number(), self.0.elapsed().as_secs_f64())
    }
}

/// All records with their ids.
pub(crate) fn ids(
    schema: &shmstats::Schema,
) -> impl Iterator<Item = (shmstats::schema::RecordId, &shmstats::schema::Record)> {
    schema.records().iter().flat_map(move |record| {
        let labels: Vec<(&str, &str)> =
            record.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        schema.find(&record.name, &labels).map(|id| (id, record))
    })
}
