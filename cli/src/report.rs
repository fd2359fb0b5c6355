//! All that can be said of a region at one time: the one source of `inspect`'s text and JSON.
//!
//! The JSON's shape is documented in `docs/json.md`; a change that breaks readers raises [`SHAPE`].

mod reader;

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use shmstats::Value;

/// The version of the JSON's shape.
pub(crate) const SHAPE: u32 = 1;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) shape: u32,
    pub(crate) path: String,
    /// When it was read, in seconds since the Unix epoch.
    pub(crate) read_at: f64,
    pub(crate) region: Region,
    pub(crate) schema: Schema,
    pub(crate) servers: Servers,
    pub(crate) primary: Primary,
    pub(crate) health: Health,
    pub(crate) slots: Vec<Slot>,
    pub(crate) counters: Vec<Counter>,
    pub(crate) gauges: Vec<Gauge>,
    pub(crate) shared: Vec<Shared>,
    pub(crate) rollups: Vec<Family>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Region {
    pub(crate) format_version: u32,
    pub(crate) file_size: u64,
    pub(crate) servers_configured: u32,
    pub(crate) slot_count: u32,
    pub(crate) slot_size: u64,
    pub(crate) created_at: f64,
    /// Whether any process is attached.
    pub(crate) live: bool,
    /// Whether anyone has written to it since this machine started.
    pub(crate) this_boot: bool,
    /// Whether the path still leads to this file.
    pub(crate) at_its_path: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Schema {
    pub(crate) namespace: String,
    pub(crate) hash: String,
    pub(crate) records: Vec<Record>,
    pub(crate) snapshots: Vec<Snapshot>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) kind: &'static str,
    /// `drained` or `single_writer`; `u64`, `i64` or `f64`.
    pub(crate) variant: &'static str,
    pub(crate) unit: String,
    pub(crate) help: String,
    pub(crate) rollup: &'static str,
    pub(crate) scope: &'static str,
    pub(crate) lifetime: &'static str,
    pub(crate) snapshot: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) scope: &'static str,
    pub(crate) lifetime: &'static str,
    pub(crate) stale_after_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Servers {
    pub(crate) configured: u32,
    pub(crate) alive: usize,
    pub(crate) dead: usize,
    pub(crate) released: usize,
    pub(crate) stopped: usize,
    pub(crate) free_slots: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct Primary {
    pub(crate) alive: bool,
    pub(crate) pid: Option<u64>,
    pub(crate) takeovers: u64,
    pub(crate) drains: u64,
    pub(crate) last_drain_age_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Health {
    pub(crate) settled: bool,
    pub(crate) interrupted_drains: u64,
    pub(crate) refused_servers: u64,
    pub(crate) skipped_writes: u64,
    pub(crate) counters_behind: u64,
    pub(crate) resets: u64,
    pub(crate) last_reset_age_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Slot {
    pub(crate) slot: usize,
    pub(crate) state: &'static str,
    pub(crate) stopped: bool,
    pub(crate) server_index: Option<u64>,
    pub(crate) pid: Option<u64>,
    pub(crate) generation: u64,
    pub(crate) claimed_age_seconds: Option<f64>,
    pub(crate) silent_seconds: Option<f64>,
    /// Whether its totals are sure.
    pub(crate) settled: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Counter {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) unit: String,
    pub(crate) total: u64,
    pub(crate) pending: u64,
    pub(crate) by_slot: Vec<CountInSlot>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CountInSlot {
    pub(crate) slot: usize,
    pub(crate) total: u64,
    pub(crate) pending: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Gauge {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) unit: String,
    pub(crate) rollup: &'static str,
    pub(crate) value: Option<Number>,
    pub(crate) by_slot: Vec<ValueInSlot>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ValueInSlot {
    pub(crate) slot: usize,
    pub(crate) value: Number,
}

/// The newest publication of a shared snapshot.
#[derive(Debug, Serialize)]
pub(crate) struct Shared {
    pub(crate) snapshot: String,
    pub(crate) labels: Labels,
    pub(crate) age_seconds: Option<f64>,
    /// Who saw it.
    pub(crate) slot: Option<usize>,
    pub(crate) values: Vec<Named>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Named {
    pub(crate) name: String,
    /// Beside the snapshot's own.
    pub(crate) labels: Labels,
    pub(crate) unit: String,
    pub(crate) value: Option<Number>,
}

/// All records of a name, over all label sets and servers.
#[derive(Debug, Serialize)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) unit: String,
    pub(crate) rollup: &'static str,
    pub(crate) value: Option<Number>,
}

pub(crate) type Labels = BTreeMap<String, String>;

/// A value; in JSON a number, or one of the strings `NaN`, `+Inf` and `-Inf`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number(pub(crate) Value);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::U64(n) => to.serialize_u64(n),
            Value::I64(n) => to.serialize_i64(n),
            Value::F64(x) if x.is_nan() => to.serialize_str("NaN"),
            Value::F64(x) if x.is_infinite() => {
                to.serialize_str(if x > 0.0 { "+Inf" } else { "-Inf" })
            }
            Value::F64(x) => to.serialize_f64(x),
        }
    }
}
