//! The handles of a server: `Counter`, `Gauge` and `Snapshot`.

use std::sync::Arc;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use shmstats::Field;
use shmstats::schema::ValueType;

use crate::cell::GilCell;
use crate::errors::raise;
use crate::state::{AnyField, Core, Fields, GaugeHandle};

/// A count: an integer that is not negative.
#[inline]
pub(crate) fn count(what: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    value.extract::<u64>().map_err(|error| refuse(what, value, error))
}

#[cold]
fn refuse(what: &str, value: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyOverflowError>(value.py()) {
        return PyTypeError::new_err(format!("{what}: {error}"));
    }
    let expected = "an integer from 0 to 2**64 - 1";
    PyValueError::new_err(format!("{what}: expected {expected}, found {value}"))
}

fn signed(what: &str, value: &Bound<'_, PyAny>) -> PyResult<i64> {
    value.extract::<i64>().map_err(|error| {
        if error.is_instance_of::<PyOverflowError>(value.py()) {
            return PyValueError::new_err(format!("{what}: {value} does not fit in 64 bits"));
        }
        PyTypeError::new_err(format!("{what}: {error}"))
    })
}

/// Whether there is something to flush.
#[inline]
pub(crate) fn reach(core: &GilCell<Core>, py: Python<'_>, f: impl FnOnce(&mut Core)) -> bool {
    let mut core = core.borrow_mut(py);
    let moved = core.wake();
    f(&mut core);
    moved
}

/// A counter of one server.
#[pyclass(name = "Counter", module = "shmstats", frozen)]
pub(crate) struct PyCounter {
    pub(crate) core: Arc<GilCell<Core>>,
    pub(crate) place: usize,
}

impl PyCounter {
    #[inline]
    fn count(&self, py: Python<'_>, n: u64) {
        if reach(&self.core, py, |core| core.count(self.place, n)) {
            crate::log::flush(py);
        }
    }
}

#[pymethods]
impl PyCounter {
    /// Counts `n` more.
    #[pyo3(signature = (n, /))]
    fn add(&self, n: &Bound<'_, PyAny>) -> PyResult<()> {
        let amount = count("add", n)?;
        self.count(n.py(), amount);
        Ok(())
    }

    /// Counts one more.
    fn inc(&self, py: Python<'_>) {
        self.count(py, 1);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.core.borrow_mut(py).counters.get(self.place) {
            Some(((name, labels), _)) => {
                format!("<Counter {name}{}>", shmstats::schema::labels_text(labels))
            }
            None => "<Counter, closed>".into(),
        }
    }
}

/// A gauge of one server.
#[pyclass(name = "Gauge", module = "shmstats", frozen)]
pub(crate) struct PyGauge {
    pub(crate) core: Arc<GilCell<Core>>,
    pub(crate) place: usize,
    pub(crate) value_type: ValueType,
}

impl PyGauge {
    fn with(&self, py: Python<'_>, f: impl FnOnce(&GaugeHandle)) {
        let use_it = |core: &mut Core| {
            if let Some((_, gauge)) = core.gauges.get(self.place) {
                f(gauge);
            }
        };
        if reach(&self.core, py, use_it) {
            crate::log::flush(py);
        }
    }

    fn change(&self, py: Python<'_>, n: i64) -> PyResult<()> {
        if self.value_type != ValueType::I64 {
            let message = "only an i64 gauge can be added to".into();
            return Err(raise(py, "InvalidValueError", message));
        }
        self.with(py, |gauge| {
            if let GaugeHandle::I64(gauge) = gauge {
                gauge.add(n);
            }
        });
        Ok(())
    }
}

#[pymethods]
impl PyGauge {
    /// Replaces the value. NaN is skipped, and the region says that a write was.
    #[pyo3(signature = (value, /))]
    fn set(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        // Looked at first: it may be an object whose conversion is Python code.
        let (mut n, mut i, mut x) = (0, 0, 0.0);
        match self.value_type {
            ValueType::U64 => n = count("set", value)?,
            ValueType::I64 => i = signed("set", value)?,
            ValueType::F64 => x = value.extract()?,
        }
        self.with(value.py(), |gauge| match gauge {
            GaugeHandle::U64(gauge) => gauge.set(n),
            GaugeHandle::I64(gauge) => gauge.set(i),
            GaugeHandle::F64(gauge) => gauge.set(x),
        });
        Ok(())
    }

    /// Adds to the value of an i64 gauge, which begins at 0.
    #[pyo3(signature = (n=1, /))]
    fn add(&self, py: Python<'_>, n: i64) -> PyResult<()> {
        self.change(py, n)
    }

    /// Takes from the value of an i64 gauge.
    #[pyo3(signature = (n=1, /))]
    fn sub(&self, py: Python<'_>, n: i64) -> PyResult<()> {
        self.change(py, n.wrapping_neg())
    }

    /// `with gauge.in_flight(): …` adds one while the block runs.
    fn in_flight(slf: Py<Self>) -> PyInFlight {
        PyInFlight(slf)
    }
}

/// One thing in flight; see `Gauge.in_flight`.
#[pyclass(name = "InFlight", module = "shmstats", frozen)]
pub(crate) struct PyInFlight(Py<PyGauge>);

#[pymethods]
impl PyInFlight {
    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get().change(py, 1)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.0.get().change(py, -1)
    }
}

/// A snapshot of one server: gauges that are published together.
#[pyclass(name = "Snapshot", module = "shmstats", frozen)]
pub(crate) struct PySnapshot {
    pub(crate) core: Arc<GilCell<Core>>,
    pub(crate) place: usize,
    pub(crate) fields: Fields,
}

pub(crate) enum Given {
    U64(Field<u64>, u64),
    I64(Field<i64>, i64),
    F64(Field<f64>, f64),
    Unset(AnyField),
}

impl PySnapshot {
    fn named(&self, name: &Bound<'_, PyAny>) -> PyResult<&(String, AnyField)> {
        let name = name.cast::<PyString>()?.to_cow()?;
        self.fields.iter().find(|(known, _)| *known == *name).ok_or_else(|| {
            let known: Vec<&str> = self.fields.iter().map(|(name, _)| &**name).collect();
            let known = known.join(", ");
            PyTypeError::new_err(format!("no gauge named {name}: there are {known}"))
        })
    }

    /// All values are looked at before any is set.
    fn publish_named(
        &self,
        py: Python<'_>,
        values: Option<&Bound<'_, PyDict>>,
        now: u64,
    ) -> PyResult<()> {
        let mut given = Vec::with_capacity(self.fields.len());
        for (name, value) in values.into_iter().flatten() {
            let (name, field) = self.named(&name)?;
            given.push(look_at(name, *field, &value)?);
        }
        self.publish_given(py, &given, now);
        Ok(())
    }

    fn publish_given(&self, py: Python<'_>, given: &[Given], now: u64) {
        if reach(&self.core, py, |core| core.publish(self.place, given, now)) {
            crate::log::flush(py);
        }
    }
}

#[inline]
pub(crate) fn look_at(name: &str, field: AnyField, value: &Bound<'_, PyAny>) -> PyResult<Given> {
    Ok(match field {
        field if value.is_none() => Given::Unset(field),
        AnyField::U64(field) => Given::U64(field, count(name, value)?),
        AnyField::I64(field) => Given::I64(field, signed(name, value)?),
        AnyField::F64(field) => Given::F64(field, value.extract()?),
    })
}

#[pymethods]
impl PySnapshot {
    /// As `publish`, with the values of the first gauges in declared order: half the cost.
    #[pyo3(signature = (values, /))]
    fn publish_row(&self, values: &Bound<'_, PyTuple>) -> PyResult<()> {
        if values.len() > self.fields.len() {
            let (most, found) = (self.fields.len(), values.len());
            let message = format!("expected at most {most} values, found {found}");
            return Err(PyValueError::new_err(message));
        }
        let mut given = Vec::with_capacity(values.len());
        for ((name, field), value) in self.fields.iter().zip(values.iter_borrowed()) {
            given.push(look_at(name, *field, &value)?);
        }
        self.publish_given(values.py(), &given, shmstats::monotonic_ns());
        Ok(())
    }

    /// Publishes these values, as of now. What is not given stays as it was, None leaves it out.
    #[pyo3(signature = (**values))]
    fn publish(&self, py: Python<'_>, values: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        self.publish_named(py, values, shmstats::monotonic_ns())
    }

    /// As `publish`, as of `now`: `time.monotonic_ns()`.
    #[pyo3(signature = (now, /, **values))]
    fn publish_at(
        &self,
        py: Python<'_>,
        now: u64,
        values: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        self.publish_named(py, values, now)
    }
}
