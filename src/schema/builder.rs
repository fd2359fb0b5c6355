//! Declaring a schema.

use std::time::Duration;

use super::{CounterMode, Kind, Lifetime, Record, Rollup, Schema, Scope, SnapshotShape, ValueType};
use crate::error::Result;

type Labels = Vec<(String, String)>;

/// Declares a counter: `CounterDef::new("requests").help("Requests answered")`.
#[derive(Clone, Debug)]
#[must_use]
pub struct CounterDef {
    name: String,
    unit: String,
    help: String,
    labels: Labels,
    families: Vec<(String, Vec<String>)>,
    mode: CounterMode,
}

impl CounterDef {
    /// A drained counter: any thread of a server may add.
    pub fn new(name: impl Into<String>) -> Self {
        CounterDef {
            name: name.into(),
            unit: String::new(),
            help: String::new(),
            labels: Vec::new(),
            families: Vec::new(),
            mode: CounterMode::Drained,
        }
    }

    /// One thread of a server adds: many times cheaper, and nothing is lost if the primary dies.
    pub fn single_writer(mut self) -> Self {
        self.mode = CounterMode::SingleWriter;
        self
    }

    /// The unit, in OpenMetrics' words: `bytes`, `seconds`.
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = unit.into();
        self
    }

    /// What it measures, for people.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// A fixed label.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// One record for each of these values of a label; called again, for each combination.
    pub fn family<V: Into<String>>(
        mut self,
        key: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        self.families.push((key.into(), values.into_iter().map(Into::into).collect()));
        self
    }

    fn label_sets(&self) -> Vec<Labels> {
        let mut sets = vec![self.labels.clone()];
        for (key, values) in &self.families {
            let with = |set: &Labels, value: &String| {
                let mut set = set.clone();
                set.push((key.clone(), value.clone()));
                set
            };
            sets = sets.iter().flat_map(|set| values.iter().map(move |v| with(set, v))).collect();
        }
        sets
    }
}

impl From<&str> for CounterDef {
    fn from(name: &str) -> Self {
        CounterDef::new(name)
    }
}

/// Declares a gauge, alone or in a snapshot: `GaugeDef::f64("kv_cache_usage").mean()`.
#[derive(Clone, Debug)]
#[must_use]
pub struct GaugeDef {
    name: String,
    unit: String,
    help: String,
    labels: Labels,
    value_type: ValueType,
    rollup: Rollup,
    lifetime: Lifetime,
}

impl GaugeDef {
    fn new(name: impl Into<String>, value_type: ValueType) -> Self {
        GaugeDef {
            name: name.into(),
            unit: String::new(),
            help: String::new(),
            labels: Vec::new(),
            value_type,
            rollup: Rollup::Sum,
            lifetime: Lifetime::Owner,
        }
    }

    /// A gauge of unsigned integers.
    pub fn u64(name: impl Into<String>) -> Self {
        GaugeDef::new(name, ValueType::U64)
    }

    /// A gauge of signed integers, which can also be added to.
    pub fn i64(name: impl Into<String>) -> Self {
        GaugeDef::new(name, ValueType::I64)
    }

    /// A gauge of floating point numbers. NaN is refused when it is set.
    pub fn f64(name: impl Into<String>) -> Self {
        GaugeDef::new(name, ValueType::F64)
    }

    /// How values combine; by default they add up.
    pub fn rollup(mut self, rollup: Rollup) -> Self {
        self.rollup = rollup;
        self
    }

    /// Values combine to their mean: `rollup(Rollup::Mean)`.
    pub fn mean(self) -> Self {
        self.rollup(Rollup::Mean)
    }

    /// The unit, in OpenMetrics' words: `bytes`, `seconds`, `ratio`.
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = unit.into();
        self
    }

    /// What it measures, for people.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// A fixed label. In a snapshot, beside the snapshot's own.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// How long a value stays, for a gauge that stands alone; by default it goes with its owner.
    pub fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.lifetime = lifetime;
        self
    }

    fn into_record(self) -> Record {
        Record {
            name: self.name,
            labels: self.labels,
            unit: self.unit,
            help: self.help,
            kind: Kind::Gauge(self.value_type),
            rollup: self.rollup,
            scope: Scope::Server,
            lifetime: self.lifetime,
            snapshot: None,
        }
    }
}

/// Declares a group of gauges that are published together.
#[derive(Clone, Debug)]
#[must_use]
pub struct SnapshotDef {
    name: String,
    labels: Labels,
    scope: Scope,
    lifetime: Lifetime,
    stale_after: Duration,
    gauges: Vec<GaugeDef>,
}

impl SnapshotDef {
    /// A snapshot of the server itself, gone with its owner.
    pub fn new(name: impl Into<String>) -> Self {
        SnapshotDef {
            name: name.into(),
            labels: Vec::new(),
            scope: Scope::Server,
            lifetime: Lifetime::Owner,
            stale_after: Duration::ZERO,
            gauges: Vec::new(),
        }
    }

    /// It describes a thing that several servers observe, named by its labels: the newest
    /// publication of any server wins, also after that server has died.
    pub fn shared(mut self) -> Self {
        self.scope = Scope::Shared;
        self
    }

    /// How long a publication stays; by default it goes with its owner.
    pub fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// A publication older than this counts as absent; by default none does.
    pub fn stale_after(mut self, age: Duration) -> Self {
        self.stale_after = age;
        self
    }

    /// A fixed label of all its gauges.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// Adds a gauge.
    pub fn gauge(mut self, gauge: GaugeDef) -> Self {
        self.gauges.push(gauge);
        self
    }
}

/// Collects declarations; see [`Schema::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SchemaBuilder {
    namespace: String,
    records: Vec<Record>,
    snapshots: Vec<SnapshotShape>,
}

impl SchemaBuilder {
    pub(super) fn new(namespace: String) -> Self {
        SchemaBuilder { namespace, records: Vec::new(), snapshots: Vec::new() }
    }

    /// Adds a counter; a name alone makes a drained one.
    pub fn counter(mut self, counter: impl Into<CounterDef>) -> Self {
        let def = counter.into();
        for labels in def.label_sets() {
            self.records.push(Record {
                name: def.name.clone(),
                labels,
                unit: def.unit.clone(),
                help: def.help.clone(),
                kind: Kind::Counter(def.mode),
                rollup: Rollup::Sum,
                scope: Scope::Server,
                lifetime: Lifetime::Region,
                snapshot: None,
            });
        }
        self
    }

    /// Adds a gauge that stands alone.
    pub fn gauge(mut self, gauge: GaugeDef) -> Self {
        self.records.push(gauge.into_record());
        self
    }

    /// Adds a snapshot.
    pub fn snapshot(mut self, snapshot: SnapshotDef) -> Self {
        let start = self.records.len();
        let place = self.snapshots.len();
        for gauge in snapshot.gauges {
            let mut record = gauge.into_record();
            let own = std::mem::replace(&mut record.labels, snapshot.labels.clone());
            record.labels.extend(own);
            record.scope = snapshot.scope;
            record.lifetime = snapshot.lifetime;
            record.snapshot = Some(place);
            self.records.push(record);
        }
        self.snapshots.push(SnapshotShape {
            name: snapshot.name,
            labels: snapshot.labels,
            scope: snapshot.scope,
            lifetime: snapshot.lifetime,
            stale_after_ns: u64::try_from(snapshot.stale_after.as_nanos()).unwrap_or(u64::MAX),
            records: start..self.records.len(),
        });
        self
    }

    /// Checks all of it.
    ///
    /// # Errors
    /// [`Error::InvalidSchema`](crate::Error::InvalidSchema) names the first rule that is broken.
    pub fn build(self) -> Result<Schema> {
        Schema::new(self.namespace, self.records, self.snapshots)
    }
}
