//! What is measured, declared once: records, snapshots and the rules they keep. Pure.

mod builder;
pub mod names;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub use builder::{CounterDef, GaugeDef, SchemaBuilder, SnapshotDef};

use crate::error::{Error, Result};

/// Most records in one schema.
pub const MAX_RECORDS: usize = 4096;
/// Most gauges in one snapshot: one present bit each in a word.
pub const MAX_FIELDS: usize = 64;

/// How a counter is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CounterMode {
    /// Any thread of the server adds; the primary resets with `swap(0)`.
    Drained,
    /// One thread adds through a `&mut` handle; the cell is never reset.
    SingleWriter,
}

/// What a gauge holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// An unsigned integer.
    U64,
    /// A signed integer, which can also be added to.
    I64,
    /// A floating point number; never NaN.
    F64,
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A cumulative u64.
    Counter(CounterMode),
    /// A value that replaces the last.
    Gauge(ValueType),
}

impl Kind {
    /// Whether it is a cumulative count.
    #[must_use]
    pub fn is_counter(self) -> bool {
        matches!(self, Kind::Counter(_))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Counter(CounterMode::Drained) => "drained counter",
            Kind::Counter(CounterMode::SingleWriter) => "single-writer counter",
            Kind::Gauge(ValueType::U64) => "u64 gauge",
            Kind::Gauge(ValueType::I64) => "i64 gauge",
            Kind::Gauge(ValueType::F64) => "f64 gauge",
        })
    }
}

/// Whom a value describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The server that publishes it: rolled up over live servers.
    #[default]
    Server,
    /// A thing that several servers observe: the newest observation wins.
    Shared,
}

/// How long a gauge stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// Gone with the owner of the slot.
    #[default]
    Owner,
    /// Stays until replaced or reset.
    Region,
}

/// How the values of several servers, or of several label sets, combine into one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rollup {
    /// They add up.
    #[default]
    Sum,
    /// Their arithmetic mean.
    Mean,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

/// A record's place in [`Schema::records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId(pub(crate) usize);

impl RecordId {
    /// The position in [`Schema::records`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// One declared series.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Its name, without namespace and unit.
    pub name: String,
    /// Its fixed labels.
    pub labels: Vec<(String, String)>,
    /// The unit of its values in OpenMetrics' words (`bytes`, `seconds`), or empty.
    pub unit: String,
    /// What it measures, for people.
    pub help: String,
    /// What it is.
    pub kind: Kind,
    /// How its values combine.
    pub rollup: Rollup,
    /// Whom its values describe.
    pub scope: Scope,
    /// How long its value stays.
    pub lifetime: Lifetime,
    /// For a gauge of a snapshot: the snapshot's position in [`Schema::snapshots`].
    pub snapshot: Option<usize>,
}

impl Record {
    /// The name as exporters write it, without namespace and ending: the unit is put behind it,
    /// unless it is there.
    #[must_use]
    pub fn exported_name(&self) -> String {
        with_unit(&self.name, &self.unit)
    }

    /// The labels as they are written in text, `{key="value"}`, or nothing.
    #[must_use]
    pub fn labels_text(&self) -> String {
        labels_text(&self.labels)
    }
}

pub(crate) fn with_unit(name: &str, unit: &str) -> String {
    let has_unit = unit.is_empty() || name.ends_with(&format!("_{unit}"));
    if has_unit { name.into() } else { format!("{name}_{unit}") }
}

/// Labels as `{key="value",…}` with quotes, backslashes and newlines escaped; nothing for none.
#[must_use]
pub fn labels_text<K: AsRef<str>, V: AsRef<str>>(labels: &[(K, V)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let escape = |v: &str| v.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<String> =
        labels.iter().map(|(k, v)| format!("{}=\"{}\"", k.as_ref(), escape(v.as_ref()))).collect();
    format!("{{{}}}", pairs.join(","))
}

/// A group of gauges that are published together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotShape {
    /// Its name.
    pub name: String,
    /// The labels of all its gauges.
    pub labels: Vec<(String, String)>,
    /// Whom it describes.
    pub scope: Scope,
    /// How long it stays.
    pub lifetime: Lifetime,
    /// A publication older than this, in nanoseconds, counts as absent; 0: never.
    pub stale_after_ns: u64,
    /// Its gauges, as positions in [`Schema::records`].
    pub records: Range<usize>,
}

/// What is measured. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema(Arc<Inner>);

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    namespace: String,
    records: Vec<Record>,
    snapshots: Vec<SnapshotShape>,
}

impl Schema {
    /// Starts a declaration. Exported names get `namespace_` in front.
    pub fn builder(namespace: impl Into<String>) -> SchemaBuilder {
        SchemaBuilder::new(namespace.into())
    }

    /// Checks every rule and makes the schema. Both the builder and the file decoder end here.
    pub(crate) fn new(
        namespace: String,
        records: Vec<Record>,
        snapshots: Vec<SnapshotShape>,
    ) -> Result<Self> {
        names::namespace(&namespace)?;
        limit("number of records", records.len(), 1, MAX_RECORDS)?;
        for record in &records {
            check_record(record)?;
        }
        for snapshot in &snapshots {
            names::snapshot(&snapshot.name)?;
            names::labels(&snapshot.name, &snapshot.labels)?;
            let what = format!("number of gauges in snapshot {}", snapshot.name);
            limit(&what, snapshot.records.len(), 1, MAX_FIELDS)?;
            check_fields(snapshot, &records)?;
        }
        check_families(&records)?;
        check_snapshots(&snapshots)?;
        Ok(Schema(Arc::new(Inner { namespace, records, snapshots })))
    }

    /// The prefix of exported names.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// All records, in declared order; the gauges of a snapshot stand together.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.0.records
    }

    /// The ids of all records, in declared order.
    pub fn ids(&self) -> impl Iterator<Item = RecordId> + use<> {
        (0..self.records().len()).map(RecordId)
    }

    /// All snapshots, in declared order.
    #[must_use]
    pub fn snapshots(&self) -> &[SnapshotShape] {
        &self.0.snapshots
    }

    /// The record of this name and these labels (in any order).
    #[must_use]
    pub fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<RecordId> {
        self.named(name).find(|id| same_labels(&self[*id].labels, labels))
    }

    /// Every record of this name, whatever its labels.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = RecordId> + 'a {
        let matches = move |(_, record): &(usize, &Record)| record.name == name;
        self.records().iter().enumerate().filter(matches).map(|(i, _)| RecordId(i))
    }

    /// The first difference to `other`, in words; `None` if there is none.
    #[must_use]
    pub fn difference(&self, other: &Schema) -> Option<String> {
        if self.namespace() != other.namespace() {
            let (a, b) = (self.namespace(), other.namespace());
            return Some(format!("namespace: expected {a}, found {b}"));
        }
        for (i, ours) in self.records().iter().enumerate() {
            let name = format!("{}{}", ours.name, ours.labels_text());
            match other.records().get(i) {
                None => return Some(format!("record {name}: expected, not found")),
                Some(theirs) if theirs != ours => {
                    return Some(format!("record {i}: expected {ours:?}, found {theirs:?}"));
                }
                Some(_) => {}
            }
        }
        if let Some(extra) = other.records().get(self.records().len()) {
            return Some(format!("record {}{}: not expected", extra.name, extra.labels_text()));
        }
        (self != other).then(|| "snapshots: they differ in name, scope or lifetime".into())
    }
}

impl std::ops::Index<RecordId> for Schema {
    type Output = Record;

    fn index(&self, id: RecordId) -> &Record {
        &self.records()[id.0]
    }
}

pub(crate) fn same_labels(have: &[(String, String)], want: &[(&str, &str)]) -> bool {
    have.len() == want.len()
        && want.iter().all(|(key, value)| have.iter().any(|(k, v)| k == key && v == value))
}

fn limit(what: &str, found: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(Error::InvalidSchema {
        what: what.into(),
        expected: format!("{least} to {most}"),
        found: found.to_string(),
    })
}

fn check_record(record: &Record) -> Result<()> {
    names::record(&record.name)?;
    names::unit(&record.unit)?;
    names::help(&record.name, &record.help)?;
    names::labels(&record.name, &record.labels)?;
    let lone_shared = record.scope == Scope::Shared && record.snapshot.is_none();
    if lone_shared {
        return Err(Error::InvalidSchema {
            what: format!("scope of {}", record.name),
            expected: "Server, or a snapshot, whose publications carry the time that tells \
                       the newest"
                .into(),
            found: "Shared".into(),
        });
    }
    Ok(())
}

/// Records of one name are one family: alike but for their labels, which tell them apart.
fn check_families(records: &[Record]) -> Result<()> {
    let mut first_of = std::collections::HashMap::new();
    let mut seen = std::collections::HashSet::new();
    let mut exported = std::collections::HashMap::new();
    for record in records {
        let other = exported.entry(record.exported_name()).or_insert(&record.name);
        if *other != &record.name {
            return Err(Error::InvalidSchema {
                what: format!("record {}", record.name),
                expected: format!("a name that with its unit is not that of {other}"),
                found: record.exported_name(),
            });
        }
        let first: &Record = first_of.entry(record.name.as_str()).or_insert(record);
        let shape = |r: &Record| (r.kind, r.unit.clone(), r.rollup, r.scope, r.lifetime);
        if shape(first) != shape(record) {
            return Err(Error::InvalidSchema {
                what: format!("family {}", record.name),
                expected: format!("the same kind, unit, rollup and scope as {:?}", shape(first)),
                found: format!("{:?}", shape(record)),
            });
        }
        let mut labels = record.labels.clone();
        labels.sort();
        if !seen.insert((record.name.as_str(), labels)) {
            return Err(Error::InvalidSchema {
                what: "record".into(),
                expected: "each name and label set once".into(),
                found: format!("{}{}", record.name, record.labels_text()),
            });
        }
    }
    Ok(())
}

/// A snapshot's gauges are asked for by name alone.
fn check_fields(snapshot: &SnapshotShape, records: &[Record]) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    let mut names = records[snapshot.records.clone()].iter().map(|record| &record.name);
    match names.find(|name| !seen.insert(name.as_str())) {
        Some(twice) => Err(Error::InvalidSchema {
            what: format!("snapshot {}", snapshot.name),
            expected: "gauges of different names".into(),
            found: twice.clone(),
        }),
        None => Ok(()),
    }
}

/// A snapshot is asked for by name and labels, so a second one of the same could not be reached.
fn check_snapshots(snapshots: &[SnapshotShape]) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    for snapshot in snapshots {
        let mut labels = snapshot.labels.clone();
        labels.sort();
        if !seen.insert((snapshot.name.as_str(), labels)) {
            return Err(Error::InvalidSchema {
                what: "snapshot".into(),
                expected: "each name and label set once".into(),
                found: format!("{}{}", snapshot.name, labels_text(&snapshot.labels)),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
