//! What a server's Python objects share: its handles, by number.
//!
//! The objects hold a number each. So closing a server gives its slot back at once, and a forked
//! child, which owns none of its parent's slot, claims one of its own at first use and points every
//! handle there.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use shmstats::schema::{CounterMode, Kind, RecordId, ValueType};
use shmstats::{Error, Field, Server};
use tracing::Level;

use crate::errors::closed;
use crate::handles::Given;
use crate::schema::{Labels, as_pairs, labels};

pub(crate) enum CounterHandle {
    Drained(shmstats::Counter),
    Single(shmstats::SingleWriterCounter),
}

pub(crate) enum GaugeHandle {
    U64(shmstats::Gauge<u64>),
    I64(shmstats::Gauge<i64>),
    F64(shmstats::Gauge<f64>),
}

#[derive(Clone, Copy)]
pub(crate) enum AnyField {
    U64(Field<u64>),
    I64(Field<i64>),
    F64(Field<f64>),
}

pub(crate) type Fields = Vec<(String, AnyField)>;

/// What names a handle, so that it can be had again from another server.
pub(crate) type Key = (String, Labels);

pub(crate) struct Core {
    /// Nothing once closed.
    pub(crate) server: Option<Server>,
    pub(crate) counters: Vec<(Key, CounterHandle)>,
    pub(crate) gauges: Vec<(Key, GaugeHandle)>,
    pub(crate) snapshots: Vec<(Key, shmstats::Snapshot)>,
    /// The process that tried for a slot of its own in vain.
    adrift: Option<u32>,
}

impl Core {
    /// Whether there is something to [`flush`](crate::log::flush), once this is not borrowed.
    ///
    /// In a forked child: claims a slot of its own. Where there is none, counters go on in the
    /// slot of the parent, which takes any number of adders, and the rest is skipped.
    #[inline]
    pub(crate) fn wake(&mut self) -> bool {
        match &self.server {
            Some(server) if !server.is_mine() => self.move_house(),
            _ => false,
        }
    }

    #[cold]
    #[inline(never)]
    fn move_house(&mut self) -> bool {
        let Some(server) = &self.server else { return false };
        if self.adrift == Some(std::process::id()) {
            return false;
        }
        match server.region().claim_any().and_then(|server| Core::again(self, server)) {
            Ok(core) => *self = core,
            Err(error) => {
                self.adrift = Some(std::process::id());
                crate::log::say(
                    Level::WARN,
                    format!("a forked child has no slot of its own, its gauges are lost: {error}"),
                );
            }
        }
        true
    }

    pub(crate) fn of(server: Server) -> Self {
        let (counters, gauges, snapshots) = (Vec::new(), Vec::new(), Vec::new());
        Core { server: Some(server), counters, gauges, snapshots, adrift: None }
    }

    /// The same handles, of another server.
    fn again(old: &Core, server: Server) -> shmstats::Result<Self> {
        let mut core = Core::of(server.clone());
        for (key, _) in &old.counters {
            core.counters.push((key.clone(), counter(&server, key)?));
        }
        for (key, _) in &old.gauges {
            core.gauges.push((key.clone(), gauge(&server, key)?));
        }
        for (key, _) in &old.snapshots {
            core.snapshots.push((key.clone(), snapshot(&server, key)?));
        }
        Ok(core)
    }

    /// Once closed, there is nowhere to count.
    #[inline]
    pub(crate) fn count(&mut self, place: usize, n: u64) {
        match self.counters.get_mut(place) {
            Some((_, CounterHandle::Drained(counter))) => counter.add(n),
            Some((_, CounterHandle::Single(counter))) => counter.add(n),
            None => {}
        }
    }

    #[inline]
    pub(crate) fn publish(&mut self, place: usize, given: &[Given], now: u64) {
        let Some((_, snapshot)) = self.snapshots.get_mut(place) else { return };
        for value in given {
            match *value {
                Given::U64(field, value) => snapshot.set(field, value),
                Given::I64(field, value) => snapshot.set(field, value),
                Given::F64(field, value) => snapshot.set(field, value),
                Given::Unset(AnyField::U64(field)) => snapshot.unset(field),
                Given::Unset(AnyField::I64(field)) => snapshot.unset(field),
                Given::Unset(AnyField::F64(field)) => snapshot.unset(field),
            }
        }
        snapshot.publish_at(now);
    }

    pub(crate) fn server(&mut self, py: Python<'_>) -> PyResult<Server> {
        self.wake();
        self.server.clone().ok_or_else(|| closed(py, "server"))
    }
}

fn record_kind(server: &Server, key: &Key) -> Option<(RecordId, Kind)> {
    let schema = server.region().schema();
    schema.find(&key.0, &as_pairs(&key.1)).map(|id| (id, schema[id].kind))
}

pub(crate) fn counter(server: &Server, key: &Key) -> Result<CounterHandle, Error> {
    let pairs = as_pairs(&key.1);
    match record_kind(server, key) {
        Some((_, Kind::Counter(CounterMode::SingleWriter))) => {
            server.single_writer_with(&key.0, &pairs).map(CounterHandle::Single)
        }
        _ => server.counter_with(&key.0, &pairs).map(CounterHandle::Drained),
    }
}

pub(crate) fn gauge(server: &Server, key: &Key) -> Result<GaugeHandle, Error> {
    let pairs = as_pairs(&key.1);
    match record_kind(server, key) {
        Some((_, Kind::Gauge(ValueType::I64))) => {
            server.gauge_with(&key.0, &pairs).map(GaugeHandle::I64)
        }
        Some((_, Kind::Gauge(ValueType::F64))) => {
            server.gauge_with(&key.0, &pairs).map(GaugeHandle::F64)
        }
        _ => server.gauge_with(&key.0, &pairs).map(GaugeHandle::U64),
    }
}

pub(crate) fn snapshot(server: &Server, key: &Key) -> Result<shmstats::Snapshot, Error> {
    server.snapshot(&key.0, &as_pairs(&key.1))
}

/// The gauges of a snapshot. A place in one is the same for all servers of a schema.
pub(crate) fn fields(
    server: &Server,
    key: &Key,
    of: &shmstats::Snapshot,
) -> shmstats::Result<Fields> {
    let schema = server.region().schema();
    let shapes = schema.snapshots().iter().filter(|shape| {
        shape.name == key.0
            && shape.labels.len() == key.1.len()
            && key.1.iter().all(|label| shape.labels.contains(label))
    });
    let mut fields = Vec::new();
    for record in shapes.flat_map(|shape| &schema.records()[shape.records.clone()]) {
        let field = match record.kind {
            Kind::Gauge(ValueType::I64) => AnyField::I64(of.field(&record.name)?),
            Kind::Gauge(ValueType::F64) => AnyField::F64(of.field(&record.name)?),
            _ => AnyField::U64(of.field(&record.name)?),
        };
        fields.push((record.name.clone(), field));
    }
    Ok(fields)
}

/// Finds a handle or makes it.
pub(crate) fn handle<H>(
    handles: &mut Vec<(Key, H)>,
    key: Key,
    make: impl FnOnce(&Key) -> shmstats::Result<H>,
) -> shmstats::Result<usize> {
    if let Some(place) = handles.iter().position(|(known, _)| *known == key) {
        return Ok(place);
    }
    let made = make(&key)?;
    handles.push((key, made));
    Ok(handles.len() - 1)
}

pub(crate) fn key(name: &str, given: Option<&Bound<'_, PyDict>>) -> PyResult<Key> {
    let mut labels = labels(given)?;
    labels.sort();
    Ok((name.into(), labels))
}
