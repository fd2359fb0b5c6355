//! Recording straight from the attributes of an object: what a plugin does at every step of a
//! program that is not its own, where each line of Python would be paid for with cold caches.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::cell::GilCell;
use crate::handles::{Given, PyCounter, PySnapshot, count, look_at, reach};
use crate::state::{Core, Fields};

/// What becomes of an attribute.
enum Use {
    /// Its value is added to the counter in this place.
    Count(usize),
    /// Its elements are added to these, in order; those beyond are left out.
    CountEach(Vec<usize>),
    /// It is an object whose attributes are used.
    Look(Vec<Node>),
}

struct Node {
    name: Py<PyString>,
    purpose: Use,
}

/// Where a gauge's value is: an attribute, or an item of a dict that is one (0 if not there).
struct Source {
    attribute: Py<PyString>,
    item: Option<Py<PyString>>,
}

#[derive(Default)]
struct Scratch {
    counts: Vec<(usize, u64)>,
    given: Vec<Given>,
}

/// Reads objects of one kind into the counters and a snapshot of one server.
#[pyclass(name = "Recorder", module = "shmstats._shmstats", frozen)]
pub(crate) struct PyRecorder {
    core: Arc<GilCell<Core>>,
    counters: Vec<Node>,
    snapshot: Option<(usize, Fields)>,
    sources: Vec<Source>,
    watched: Vec<Py<PyString>>,
    zero: Py<PyAny>,
    /// Kept from call to call.
    scratch: GilCell<Scratch>,
}

type Cores = Vec<Arc<GilCell<Core>>>;

fn interned(text: &Bound<'_, PyAny>) -> PyResult<Py<PyString>> {
    let name = text.cast::<PyString>()?.to_cow()?;
    Ok(PyString::intern(text.py(), &name).unbind())
}

fn place(counter: &Bound<'_, PyAny>, cores: &mut Cores) -> PyResult<usize> {
    let counter = counter.cast::<PyCounter>()?.get();
    cores.push(Arc::clone(&counter.core));
    Ok(counter.place)
}

fn nodes(tree: &Bound<'_, PyDict>, cores: &mut Cores) -> PyResult<Vec<Node>> {
    let mut nodes = Vec::with_capacity(tree.len());
    for (name, purpose) in tree {
        let purpose = if let Ok(children) = purpose.cast::<PyDict>() {
            Use::Look(self::nodes(children, cores)?)
        } else if let Ok(list) = purpose.cast::<PyList>() {
            Use::CountEach(list.iter().map(|each| place(&each, cores)).collect::<PyResult<_>>()?)
        } else {
            Use::Count(place(&purpose, cores)?)
        };
        nodes.push(Node { name: interned(&name)?, purpose });
    }
    Ok(nodes)
}

/// What the nodes find in an object. Nothing is recorded yet: a later one may raise.
fn read(nodes: &[Node], object: &Bound<'_, PyAny>, counts: &mut Vec<(usize, u64)>) -> PyResult<()> {
    let py = object.py();
    for node in nodes {
        let name = node.name.bind(py);
        let Some(value) = object.getattr_opt(name)? else { continue };
        match &node.purpose {
            _ if value.is_none() => {}
            Use::Count(place) => match count("a count", &value)? {
                0 => {}
                n => counts.push((*place, n)),
            },
            Use::CountEach(places) => {
                for (place, each) in places.iter().zip(value.try_iter()?) {
                    counts.push((*place, count("a count", &each?)?));
                }
            }
            Use::Look(children) => read(children, &value, counts)?,
        }
    }
    Ok(())
}

impl PyRecorder {
    fn read_gauges(&self, object: &Bound<'_, PyAny>, given: &mut Vec<Given>) -> PyResult<()> {
        let Some((_, fields)) = &self.snapshot else { return Ok(()) };
        let py = object.py();
        for ((name, field), source) in fields.iter().zip(&self.sources) {
            let mut value = object.getattr_opt(source.attribute.bind(py))?;
            if let Some(item) = &source.item {
                let items = value.as_ref().and_then(|value| value.cast::<PyDict>().ok());
                value = match items {
                    Some(items) => items.get_item(item.bind(py))?,
                    None => None,
                };
                value = value.or_else(|| Some(self.zero.bind(py).clone()));
            }
            let value = value.unwrap_or_else(|| py.None().into_bound(py));
            given.push(look_at(name, *field, &value)?);
        }
        Ok(())
    }

    fn watches(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        for name in &self.watched {
            let value = object.getattr_opt(name.bind(object.py()))?;
            if value.is_some_and(|value| !value.is_none()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[pymethods]
impl PyRecorder {
    /// `counters`: by attribute, a counter, or a list of counters for its elements, or a dict of
    /// the same kind for its own attributes. `gauges`: for the first gauges of the snapshot, in
    /// order, an attribute, or the pair of one that is a dict and a key of it.
    #[new]
    #[pyo3(signature = (counters, *, snapshot=None, gauges=Vec::new(), watch=Vec::new()))]
    fn new(
        counters: &Bound<'_, PyDict>,
        snapshot: Option<&Bound<'_, PySnapshot>>,
        gauges: Vec<Bound<'_, PyAny>>,
        watch: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = counters.py();
        let mut cores = Vec::new();
        let counters = nodes(counters, &mut cores)?;
        let snapshot = snapshot.map(|snapshot| {
            let snapshot = snapshot.get();
            cores.push(Arc::clone(&snapshot.core));
            (snapshot.place, snapshot.fields.clone())
        });
        let Some(core) = cores.first().cloned() else {
            return Err(PyValueError::new_err("expected a counter or a snapshot, found none"));
        };
        if !cores.iter().all(|other| Arc::ptr_eq(other, &core)) {
            return Err(PyValueError::new_err("expected handles of one server, found several"));
        }
        if gauges.len() > snapshot.as_ref().map_or(0, |(_, fields)| fields.len()) {
            return Err(PyValueError::new_err("expected at most one source for each gauge"));
        }
        let source = |given: &Bound<'_, PyAny>| {
            if let Ok((attribute, item)) = given.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() {
                return Ok(Source {
                    attribute: interned(&attribute)?,
                    item: Some(interned(&item)?),
                });
            }
            Ok::<_, PyErr>(Source { attribute: interned(given)?, item: None })
        };
        Ok(PyRecorder {
            core,
            counters,
            snapshot,
            sources: gauges.iter().map(source).collect::<PyResult<_>>()?,
            watched: watch.iter().map(interned).collect::<PyResult<_>>()?,
            zero: 0u64.into_pyobject(py)?.into_any().unbind(),
            scratch: GilCell::new(Scratch::default()),
        })
    }

    /// Records an object: all of it, or nothing if it raises. Attributes that are missing or None
    /// are left out. The gauges are of the time `at`, in nanoseconds of CLOCK_MONOTONIC, or of now.
    /// Whether an attribute that is watched is there and not None.
    #[pyo3(signature = (object, at=None, /))]
    fn record(&self, object: &Bound<'_, PyAny>, at: Option<u64>) -> PyResult<bool> {
        let py = object.py();
        // Taken and not borrowed: attributes may be Python code that comes back here.
        let mut scratch = std::mem::take(&mut *self.scratch.borrow_mut(py));
        scratch.counts.clear();
        scratch.given.clear();
        read(&self.counters, object, &mut scratch.counts)?;
        self.read_gauges(object, &mut scratch.given)?;
        let watched = self.watches(object)?;
        let moved = reach(&self.core, py, |core| {
            for (place, n) in &scratch.counts {
                core.count(*place, *n);
            }
            if let Some((place, _)) = &self.snapshot {
                let at = at.unwrap_or_else(shmstats::monotonic_ns);
                core.publish(*place, &scratch.given, at);
            }
        });
        *self.scratch.borrow_mut(py) = scratch;
        if moved {
            crate::log::flush(py);
        }
        Ok(watched)
    }
}
