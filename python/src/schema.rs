//! Declarations, and what a schema says.

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use shmstats::schema::{
    CounterDef, GaugeDef, Kind, Lifetime, Record, RecordId, Rollup, Scope, SnapshotDef, ValueType,
};

use crate::errors::{OrRaise, raise};

pub(crate) type Labels = Vec<(String, String)>;

/// Labels as the crate looks them up.
pub(crate) fn as_pairs(labels: &Labels) -> Vec<(&str, &str)> {
    labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

pub(crate) fn labels(given: Option<&Bound<'_, PyDict>>) -> PyResult<Labels> {
    let Some(given) = given else { return Ok(Vec::new()) };
    given.iter().map(|(key, value)| Ok((key.extract()?, value.extract()?))).collect()
}

fn choose<T: Copy>(what: &str, given: &str, choices: &[(&str, T)]) -> PyResult<T> {
    choices.iter().find(|(name, _)| *name == given).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        PyValueError::new_err(format!("{what}: expected one of {names}, found {given:?}"))
    })
}

const ROLLUPS: [(&str, Rollup); 4] =
    [("sum", Rollup::Sum), ("mean", Rollup::Mean), ("max", Rollup::Max), ("min", Rollup::Min)];
const LIFETIMES: [(&str, Lifetime); 2] = [("owner", Lifetime::Owner), ("region", Lifetime::Region)];
const TYPES: [(&str, ValueType); 3] =
    [("u64", ValueType::U64), ("i64", ValueType::I64), ("f64", ValueType::F64)];

/// Declares a counter.
#[pyclass(name = "CounterDef", module = "shmstats", frozen)]
#[derive(Clone)]
pub(crate) struct PyCounterDef(CounterDef, String);

#[pymethods]
impl PyCounterDef {
    #[new]
    #[pyo3(signature = (name, *, labels=None, unit="", help="", single_writer=false))]
    fn new(
        name: String,
        labels: Option<&Bound<'_, PyDict>>,
        unit: &str,
        help: &str,
        single_writer: bool,
    ) -> PyResult<Self> {
        let mut def = CounterDef::new(&name).unit(unit).help(help);
        if single_writer {
            def = def.single_writer();
        }
        for (key, value) in labels.into_iter().flatten() {
            let key: String = key.extract()?;
            def = match value.extract::<String>() {
                Ok(value) => def.label(key, value),
                Err(_) => def.family(key, value.extract::<Vec<String>>()?),
            };
        }
        Ok(PyCounterDef(def, name))
    }

    fn __repr__(&self) -> String {
        format!("CounterDef({:?})", self.1)
    }
}

/// Declares a gauge, alone or in a snapshot.
#[pyclass(name = "GaugeDef", module = "shmstats", frozen)]
#[derive(Clone)]
pub(crate) struct PyGaugeDef(GaugeDef, String);

#[pymethods]
impl PyGaugeDef {
    #[new]
    #[pyo3(signature = (name, *, r#type="u64", rollup="sum", lifetime="owner", labels=None, unit="", help=""))]
    fn new(
        name: String,
        r#type: &str,
        rollup: &str,
        lifetime: &str,
        labels: Option<&Bound<'_, PyDict>>,
        unit: &str,
        help: &str,
    ) -> PyResult<Self> {
        let def = match choose("type", r#type, &TYPES)? {
            ValueType::U64 => GaugeDef::u64(&name),
            ValueType::I64 => GaugeDef::i64(&name),
            ValueType::F64 => GaugeDef::f64(&name),
        };
        let mut def = def
            .rollup(choose("rollup", rollup, &ROLLUPS)?)
            .lifetime(choose("lifetime", lifetime, &LIFETIMES)?)
            .unit(unit)
            .help(help);
        for (key, value) in self::labels(labels)? {
            def = def.label(key, value);
        }
        Ok(PyGaugeDef(def, name))
    }

    fn __repr__(&self) -> String {
        format!("GaugeDef({:?})", self.1)
    }
}

/// Declares gauges that are published together.
#[pyclass(name = "SnapshotDef", module = "shmstats", frozen)]
#[derive(Clone)]
pub(crate) struct PySnapshotDef(SnapshotDef, String);

#[pymethods]
impl PySnapshotDef {
    #[new]
    #[pyo3(signature = (name, *gauges, shared=false, lifetime="owner", stale_after=0.0, labels=None))]
    fn new(
        name: String,
        gauges: &Bound<'_, PyTuple>,
        shared: bool,
        lifetime: &str,
        stale_after: f64,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let stale_after = Duration::try_from_secs_f64(stale_after)
            .map_err(|error| PyValueError::new_err(format!("stale_after: {error}")))?;
        let mut def = SnapshotDef::new(&name)
            .lifetime(choose("lifetime", lifetime, &LIFETIMES)?)
            .stale_after(stale_after);
        if shared {
            def = def.shared();
        }
        for (key, value) in self::labels(labels)? {
            def = def.label(key, value);
        }
        for gauge in gauges {
            def = def.gauge(gauge.cast::<PyGaugeDef>()?.get().0.clone());
        }
        Ok(PySnapshotDef(def, name))
    }

    fn __repr__(&self) -> String {
        format!("SnapshotDef({:?})", self.1)
    }
}

/// What is measured.
#[pyclass(name = "Schema", module = "shmstats", frozen)]
pub(crate) struct PySchema(pub(crate) shmstats::Schema);

#[pymethods]
impl PySchema {
    #[new]
    #[pyo3(signature = (namespace, *declarations))]
    fn new(py: Python<'_>, namespace: String, declarations: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let mut builder = shmstats::Schema::builder(namespace);
        for declaration in declarations {
            builder = if let Ok(def) = declaration.cast::<PyCounterDef>() {
                builder.counter(def.get().0.clone())
            } else if let Ok(def) = declaration.cast::<PyGaugeDef>() {
                builder.gauge(def.get().0.clone())
            } else if let Ok(def) = declaration.cast::<PySnapshotDef>() {
                builder.snapshot(def.get().0.clone())
            } else {
                return Err(PyTypeError::new_err(format!(
                    "expected a CounterDef, GaugeDef or SnapshotDef, found {}",
                    declaration.get_type().name()?
                )));
            };
        }
        builder.build().or_raise(py).map(PySchema)
    }

    /// The prefix of exported names.
    #[getter]
    fn namespace(&self) -> &str {
        self.0.namespace()
    }

    /// All records, in declared order.
    #[getter]
    fn records<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.0.records().iter().map(|record| PyRecord(record.clone())))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PySchema>().is_ok_and(|other| other.get().0 == self.0)
    }

    fn __repr__(&self) -> String {
        format!("<Schema {} of {} records>", self.0.namespace(), self.0.records().len())
    }
}

/// One declared series.
#[pyclass(name = "Record", module = "shmstats", frozen)]
pub(crate) struct PyRecord(Record);

#[pymethods]
impl PyRecord {
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        labels_dict(py, &self.0)
    }

    /// `counter` or `gauge`.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.0.kind {
            Kind::Counter(_) => "counter",
            Kind::Gauge(_) => "gauge",
            _ => "unknown",
        }
    }

    #[getter]
    fn unit(&self) -> &str {
        &self.0.unit
    }

    #[getter]
    fn help(&self) -> &str {
        &self.0.help
    }

    /// Whether several servers observe the thing it describes.
    #[getter]
    fn shared(&self) -> bool {
        self.0.scope == Scope::Shared
    }

    fn __repr__(&self) -> String {
        format!("<{} {}>", self.0.kind, series(&self.0))
    }
}

pub(crate) fn labels_dict<'py>(py: Python<'py>, record: &Record) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in &record.labels {
        dict.set_item(key, value)?;
    }
    Ok(dict)
}

/// `name{key="value"}`
pub(crate) fn series(record: &Record) -> String {
    format!("{}{}", record.name, record.labels_text())
}

/// The records asked for: of this name and these labels, or of this name whatever the labels.
pub(crate) fn find(
    py: Python<'_>,
    schema: &shmstats::Schema,
    name: &str,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<Vec<RecordId>> {
    let found: Vec<RecordId> = match given {
        None => schema.named(name).collect(),
        Some(given) => {
            let labels = labels(Some(given))?;
            schema.find(name, &as_pairs(&labels)).into_iter().collect()
        }
    };
    if found.is_empty() {
        let text = given.map_or(String::new(), |labels| labels.to_string());
        return Err(raise(py, "NoSuchRecordError", format!("no record named {name}{text}")));
    }
    Ok(found)
}
