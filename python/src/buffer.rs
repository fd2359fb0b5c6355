//! `SharedStatsBuffer`: counters and gauges for a number of servers, by index.
//!
//! An index is a label and not a slot: any process may record for any index, several may for one.
//! Each process that records owns a slot, which it claims at its first `record`. Counters add up
//! over all slots. Each gauge of an index is a shared snapshot of its own, so that the newest value
//! wins wherever it was set, and stays when its process ends.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use shmstats::schema::{CounterDef, GaugeDef, Lifetime, SnapshotDef};
use shmstats::{Counter, Error, Field, Interval, Primary, Region, Schema, Server, Snapshot};
use tracing::Level;

use crate::cell::GilCell;
use crate::errors::{OrRaise, closed};
use crate::handles::count;

const COUNTERS: [&str; 4] = ["prompt_tokens", "generation_tokens", "preemptions", "corrupted_reqs"];
const INTEGERS: [&str; 2] = ["running_reqs", "waiting_reqs"];
const RATIOS: [&str; 2] = ["kv_cache_usage", "cpu_cache_usage"];
const INDEX: &str = "index";

/// Slots beyond twice the servers: parents, restarted workers.
const SPARE_SLOTS: u32 = 16;
/// How long `get_aggregated_stats` waits for another process that aggregates just now.
const PRIMARY_PATIENCE: Duration = Duration::from_secs(5);
/// How often a process without a slot tries for one.
const SLOT_RETRY: Duration = Duration::from_secs(1);

fn schema(servers: u32) -> shmstats::Result<Schema> {
    let indices = || (0..servers).map(|index| index.to_string());
    let mut builder = Schema::builder("stats_buffer");
    for name in COUNTERS {
        builder = builder.counter(CounterDef::new(name).family(INDEX, indices()));
    }
    let mut add = |name: &str, gauge: fn(&str) -> GaugeDef| {
        for index in indices() {
            let shape = SnapshotDef::new(name).shared().lifetime(Lifetime::Region);
            let shape = shape.label(INDEX, index).gauge(gauge(name));
            builder = builder.clone().snapshot(shape);
        }
    };
    INTEGERS.iter().for_each(|name| add(name, |name| GaugeDef::u64(name)));
    RATIOS.iter().for_each(|name| add(name, |name| GaugeDef::f64(name).mean()));
    builder.build()
}

/// The handles of one index.
struct Row {
    counters: [Counter; 4],
    integers: [(Snapshot, Field<u64>); 2],
    ratios: [(Snapshot, Field<f64>); 2],
}

impl Row {
    fn of(server: &Server, index: usize) -> shmstats::Result<Self> {
        let index = index.to_string();
        let labels = [(INDEX, index.as_str())];
        let counter = |name| server.counter_with(name, &labels);
        let [a, b, c, d] = COUNTERS;
        let integer = |name| {
            let snapshot = server.snapshot(name, &labels)?;
            let field = snapshot.field(name)?;
            Ok::<_, Error>((snapshot, field))
        };
        let ratio = |name| {
            let snapshot = server.snapshot(name, &labels)?;
            let field = snapshot.field(name)?;
            Ok::<_, Error>((snapshot, field))
        };
        Ok(Row {
            counters: [counter(a)?, counter(b)?, counter(c)?, counter(d)?],
            integers: [integer(INTEGERS[0])?, integer(INTEGERS[1])?],
            ratios: [ratio(RATIOS[0])?, ratio(RATIOS[1])?],
        })
    }

    #[inline]
    fn apply(&mut self, stats: &Stats) {
        for (counter, n) in self.counters.iter().zip(stats.counts) {
            if n > 0 {
                counter.add(n);
            }
        }
        if stats.has_gauges() {
            let now = shmstats::monotonic_ns();
            for ((snapshot, field), value) in self.integers.iter_mut().zip(stats.integers) {
                if let Some(value) = value {
                    snapshot.set(*field, value);
                    snapshot.publish_at(now);
                }
            }
            for ((snapshot, field), value) in self.ratios.iter_mut().zip(stats.ratios) {
                if let Some(value) = value {
                    snapshot.set(*field, value);
                    snapshot.publish_at(now);
                }
            }
        }
    }
}

/// What one `record` was given, looked at and found good.
#[derive(Clone, Copy, Default)]
struct Stats {
    counts: [u64; 4],
    integers: [Option<u64>; 2],
    ratios: [Option<f64>; 2],
}

impl Stats {
    #[inline]
    fn has_gauges(&self) -> bool {
        self.integers.iter().any(Option::is_some) || self.ratios.iter().any(Option::is_some)
    }

    /// Later stats upon these: counts add up, gauges replace.
    fn merge(&mut self, later: &Stats) {
        for (mine, n) in self.counts.iter_mut().zip(later.counts) {
            *mine = mine.wrapping_add(n);
        }
        for (mine, value) in self.integers.iter_mut().zip(later.integers) {
            *mine = value.or(*mine);
        }
        for (mine, value) in self.ratios.iter_mut().zip(later.ratios) {
            *mine = value.or(*mine);
        }
    }
}

/// The slot of this process.
struct Desk {
    server: Server,
    rows: Vec<Option<Box<Row>>>,
}

/// A region that is removed when the last process to hold it lets go.
struct Held(Option<Region>);

impl Held {
    fn region(&self) -> &Region {
        self.0.as_ref().expect("nothing until dropped")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Refused while another process, or another object, is attached: it will try in its turn.
        let _ = self.0.take().map(Region::remove);
    }
}

struct Core {
    /// Declared before the region, of which it holds a clone.
    desk: Option<Desk>,
    held: Held,
    interval: Option<Interval>,
    /// What was recorded while there was no slot to be had, per index, by which process.
    kept: Vec<Stats>,
    keeper: u32,
    retry: Option<Instant>,
}

impl Core {
    fn of(region: Region) -> Self {
        let held = Held(Some(region));
        Core { held, desk: None, interval: None, kept: Vec::new(), keeper: 0, retry: None }
    }

    /// Whether there may be something to flush.
    #[inline]
    fn record(&mut self, index: usize, stats: &Stats) -> bool {
        match &mut self.desk {
            Some(desk) if desk.server.is_mine() => {
                if let Some(row) = &mut desk.rows[index] {
                    row.apply(stats);
                    return false;
                }
            }
            _ => {}
        }
        self.record_slowly(index, stats);
        true
    }

    #[cold]
    #[inline(never)]
    fn record_slowly(&mut self, index: usize, stats: &Stats) {
        if self.sit_down()
            && let Some(row) = self.row(index)
        {
            return row.apply(stats);
        }
        self.kept[index].merge(stats);
    }

    fn row(&mut self, index: usize) -> Option<&mut Row> {
        let desk = self.desk.as_mut()?;
        if desk.rows[index].is_none() {
            desk.rows[index] = Row::of(&desk.server, index).ok().map(Box::new);
        }
        desk.rows[index].as_deref_mut()
    }

    /// Claims a slot for this process, if it has none. `false`: there is none for now, and what is
    /// recorded is kept in `self.kept`.
    fn sit_down(&mut self) -> bool {
        if self.desk.as_ref().is_some_and(|desk| desk.server.is_mine()) {
            return true;
        }
        let servers = self.held.region().server_count() as usize;
        let me = std::process::id();
        if self.keeper != me {
            // A forked child: what the parent keeps is the parent's to record.
            (self.keeper, self.retry) = (me, None);
            self.kept = vec![Stats::default(); servers];
        }
        if self.retry.is_some_and(|retry| Instant::now() < retry) {
            return false;
        }
        match self.held.region().claim_any() {
            Ok(server) => {
                // The child's own region, attached for as long as this object lives.
                self.held.0 = Some(server.region().clone());
                self.desk = Some(Desk { server, rows: (0..servers).map(|_| None).collect() });
                self.retry = None;
                for (index, stats) in std::mem::take(&mut self.kept).iter().enumerate() {
                    if let Some(row) = self.row(index) {
                        row.apply(stats);
                    }
                }
                self.kept = vec![Stats::default(); servers];
                true
            }
            Err(error) => {
                if self.retry.is_none() {
                    let text =
                        format!("stats are kept in this process until it has a slot: {error}");
                    crate::log::say(Level::WARN, text);
                }
                self.retry = Some(Instant::now() + SLOT_RETRY);
                false
            }
        }
    }

    /// Whether something was recorded that is not in the region yet.
    fn keeps(&self) -> bool {
        self.keeper == std::process::id()
            && self.kept.iter().any(|s| s.has_gauges() || s.counts.iter().any(|n| *n > 0))
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.keeps() {
            self.retry = None;
            self.sit_down();
        }
    }
}

/// The base of `shmstats.SharedStatsBuffer`.
#[pyclass(name = "Buffer", module = "shmstats._shmstats", subclass, frozen, weakref)]
pub(crate) struct Buffer {
    core: GilCell<Option<Core>>,
    servers: u32,
}

fn ratio(name: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    let value: f64 = value.extract()?;
    if value.is_nan() {
        return Err(PyValueError::new_err(format!("{name}: expected a number, found NaN")));
    }
    Ok(value)
}

impl Buffer {
    /// Calls `f` with the primary lease held. Waits for another process that has it just now.
    fn as_primary<T>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut Primary, &mut Option<Interval>) -> T,
    ) -> PyResult<T> {
        let start = Instant::now();
        loop {
            let attempt = {
                let mut core = self.core.borrow_mut(py);
                let core = core.as_mut().ok_or_else(|| closed(py, "buffer"))?;
                if core.keeps() {
                    core.sit_down();
                }
                match core.held.region().primary() {
                    Ok(mut primary) => {
                        let done = f(&mut primary, &mut core.interval);
                        drop(primary);
                        return Ok(done);
                    }
                    Err(error) => error,
                }
            };
            if !matches!(attempt, Error::Held { .. }) || start.elapsed() > PRIMARY_PATIENCE {
                return Err(attempt).or_raise(py);
            }
            py.detach(|| std::thread::sleep(Duration::from_micros(200)));
            py.check_signals()?;
        }
    }
}

#[pymethods]
impl Buffer {
    #[new]
    #[pyo3(signature = (path, num_servers, create))]
    fn new(py: Python<'_>, path: PathBuf, num_servers: u32, create: bool) -> PyResult<Self> {
        let schema = schema(num_servers).or_raise(py)?;
        let slots = num_servers.saturating_mul(2).saturating_add(SPARE_SLOTS);
        let options = Region::options(num_servers).slots(slots);
        let region = if create { options.create(path, &schema) } else { options.open(path) };
        let region = region.or_raise(py)?;
        if let Some(difference) = schema.difference(region.schema()) {
            let path = region.path().display();
            let text = format!("{path}: not a SharedStatsBuffer of this size: {difference}");
            return Err(crate::errors::raise(py, "SchemaMismatchError", text));
        }
        Ok(Buffer { core: GilCell::new(Some(Core::of(region))), servers: num_servers })
    }

    /// Records what a server counted (added up) and how it stands (replaced).
    #[pyo3(signature = (server_idx, *, prompt_tokens=None, generation_tokens=None, preemptions=None,
        corrupted_reqs=None, running_reqs=None, waiting_reqs=None, kv_cache_usage=None,
        cpu_cache_usage=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments, which a struct cannot be")]
    fn record(
        &self,
        py: Python<'_>,
        server_idx: i64,
        prompt_tokens: Option<&Bound<'_, PyAny>>,
        generation_tokens: Option<&Bound<'_, PyAny>>,
        preemptions: Option<&Bound<'_, PyAny>>,
        corrupted_reqs: Option<&Bound<'_, PyAny>>,
        running_reqs: Option<&Bound<'_, PyAny>>,
        waiting_reqs: Option<&Bound<'_, PyAny>>,
        kv_cache_usage: Option<&Bound<'_, PyAny>>,
        cpu_cache_usage: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if !(0..i64::from(self.servers)).contains(&server_idx) {
            let expected = format!("expected an index below {}", self.servers);
            return Err(PyIndexError::new_err(format!("server_idx {server_idx}: {expected}")));
        }
        // All of it is looked at before any of it is recorded.
        let mut stats = Stats::default();
        let counts = [prompt_tokens, generation_tokens, preemptions, corrupted_reqs];
        for i in 0..4 {
            if let Some(value) = counts[i] {
                stats.counts[i] = count(COUNTERS[i], value)?;
            }
        }
        let integers = [running_reqs, waiting_reqs];
        let ratios = [kv_cache_usage, cpu_cache_usage];
        for i in 0..2 {
            if let Some(value) = integers[i] {
                stats.integers[i] = Some(count(INTEGERS[i], value)?);
            }
            if let Some(value) = ratios[i] {
                stats.ratios[i] = Some(ratio(RATIOS[i], value)?);
            }
        }
        let recorded =
            self.core.borrow_mut(py).as_mut().map(|core| core.record(server_idx as usize, &stats));
        match recorded {
            Some(false) => {}
            Some(true) => crate::log::flush(py),
            None => return Err(closed(py, "buffer")),
        }
        Ok(())
    }

    /// Sums of what was counted since the last reset, and how the servers stand.
    #[pyo3(signature = (reset_counters=true))]
    fn get_aggregated_stats<'py>(
        &self,
        py: Python<'py>,
        reset_counters: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let interval = self.as_primary(py, |primary, kept| {
            if !reset_counters {
                return primary.peek();
            }
            let mut interval = kept.take().unwrap_or_else(|| primary.interval());
            primary.drain_into(&mut interval);
            interval
        })?;
        crate::log::flush(py);
        let dict = PyDict::new(py);
        for name in COUNTERS {
            dict.set_item(format!("total_{name}"), interval.delta(name))?;
        }
        for name in INTEGERS {
            // Sums of small integers are exact in a float.
            dict.set_item(format!("total_{name}"), interval.gauge(name).unwrap_or(0.0) as u64)?;
        }
        for name in RATIOS {
            dict.set_item(format!("avg_{name}"), interval.gauge(name).unwrap_or(0.0))?;
        }
        if let Some(core) = self.core.borrow_mut(py).as_mut() {
            core.interval = Some(interval);
        }
        Ok(dict)
    }

    /// Forgets all counts and gauges.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.as_primary(py, |primary, _| primary.reset())
    }

    /// In a forked child: attaches, so that the file stays while the child has it.
    fn _attach(&self, py: Python<'_>) {
        if let Some(core) = self.core.borrow_mut(py).as_mut()
            && let Ok(region) = core.held.region().of_this_process()
        {
            core.held.0 = Some(region);
        }
    }

    /// Detaches; the last one to do so removes the file.
    fn close(&self, py: Python<'_>) {
        self.core.borrow_mut(py).take();
    }

    #[getter]
    fn num_servers(&self) -> u32 {
        self.servers
    }

    /// Where the region is.
    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<PathBuf> {
        match self.core.borrow_mut(py).as_ref() {
            Some(core) => Ok(core.held.region().path().to_path_buf()),
            None => Err(closed(py, "buffer")),
        }
    }
}
