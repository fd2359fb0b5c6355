//! A schema as a TOML file, for programs in any language. The form is in `docs/schema-file.md`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use shmstats::Schema;
use shmstats::schema::{CounterDef, GaugeDef, Lifetime, Rollup, SnapshotDef};

use crate::fail::Failure;
use crate::text::parse_duration;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    namespace: String,
    #[serde(default)]
    counter: Vec<Counter>,
    #[serde(default)]
    gauge: Vec<Gauge>,
    #[serde(default)]
    snapshot: Vec<Snapshot>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counter {
    name: String,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    help: String,
    #[serde(default)]
    single_writer: bool,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// One record for each combination of these label values.
    #[serde(default)]
    family: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Gauge {
    name: String,
    #[serde(rename = "type")]
    value_type: ValueType,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    help: String,
    #[serde(default)]
    rollup: RollupWord,
    lifetime: Option<LifetimeWord>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Snapshot {
    name: String,
    #[serde(default)]
    shared: bool,
    lifetime: Option<LifetimeWord>,
    stale_after: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// One snapshot for each combination of these label values.
    #[serde(default)]
    family: BTreeMap<String, Vec<String>>,
    gauge: Vec<Gauge>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ValueType {
    U64,
    I64,
    F64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RollupWord {
    #[default]
    Sum,
    Mean,
    Max,
    Min,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LifetimeWord {
    Owner,
    Region,
}

impl From<LifetimeWord> for Lifetime {
    fn from(word: LifetimeWord) -> Self {
        match word {
            LifetimeWord::Owner => Lifetime::Owner,
            LifetimeWord::Region => Lifetime::Region,
        }
    }
}

/// Reads a schema file.
pub(crate) fn read(path: &Path) -> Result<Schema, Failure> {
    let bad = |what: String| Failure::Bad(format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| bad(format!("cannot read: {e}")))?;
    parse(&text).map_err(bad)
}

fn parse(text: &str) -> Result<Schema, String> {
    let file: File = toml::from_str(text).map_err(|e| {
        let line = e.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
        format!("line {line}: {}", e.message())
    })?;
    let mut builder = Schema::builder(file.namespace);
    for counter in file.counter {
        builder = builder.counter(counter.define());
    }
    for gauge in file.gauge {
        builder = builder.gauge(gauge.define());
    }
    for snapshot in file.snapshot {
        for labels in combinations(&snapshot.family) {
            builder = builder.snapshot(snapshot.define(labels)?);
        }
    }
    builder.build().map_err(|e| e.to_string())
}

impl Counter {
    fn define(self) -> CounterDef {
        let mut def = CounterDef::new(self.name).unit(self.unit).help(self.help);
        if self.single_writer {
            def = def.single_writer();
        }
        for (key, value) in self.labels {
            def = def.label(key, value);
        }
        for (key, values) in self.family {
            def = def.family(key, values);
        }
        def
    }
}

impl Gauge {
    fn define(&self) -> GaugeDef {
        let name = self.name.clone();
        let mut def = match self.value_type {
            ValueType::U64 => GaugeDef::u64(name),
            ValueType::I64 => GaugeDef::i64(name),
            ValueType::F64 => GaugeDef::f64(name),
        };
        def = def.unit(&self.unit).help(&self.help).rollup(match self.rollup {
            RollupWord::Sum => Rollup::Sum,
            RollupWord::Mean => Rollup::Mean,
            RollupWord::Max => Rollup::Max,
            RollupWord::Min => Rollup::Min,
        });
        if let Some(lifetime) = self.lifetime {
            def = def.lifetime(lifetime.into());
        }
        for (key, value) in &self.labels {
            def = def.label(key, value);
        }
        def
    }
}

impl Snapshot {
    fn define(&self, family: Vec<(String, String)>) -> Result<SnapshotDef, String> {
        let mut def = SnapshotDef::new(&self.name);
        if self.shared {
            def = def.shared();
        }
        if let Some(lifetime) = self.lifetime {
            def = def.lifetime(lifetime.into());
        }
        if let Some(text) = &self.stale_after {
            let age: Duration =
                parse_duration(text).map_err(|e| format!("stale_after of {}: {e}", self.name))?;
            def = def.stale_after(age);
        }
        for (key, value) in &self.labels {
            def = def.label(key, value);
        }
        for (key, value) in family {
            def = def.label(key, value);
        }
        for gauge in &self.gauge {
            if gauge.lifetime.is_some() {
                let name = &gauge.name;
                return Err(format!("gauge {name}: the lifetime is that of its snapshot"));
            }
            def = def.gauge(gauge.define());
        }
        Ok(def)
    }
}

/// Every combination of the values; one empty one of nothing.
fn combinations(family: &BTreeMap<String, Vec<String>>) -> Vec<Vec<(String, String)>> {
    let mut sets = vec![Vec::new()];
    for (key, values) in family {
        let with = |set: &Vec<(String, String)>, value: &String| {
            let mut set = set.clone();
            set.push((key.clone(), value.clone()));
            set
        };
        sets = sets.iter().flat_map(|set| values.iter().map(move |v| with(set, v))).collect();
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_a_schema_has_can_be_said() {
        let schema = parse(
            r#"
            namespace = "shop"
            [[counter]]
            name = "requests"
            help = "Requests answered"
            family = { status = ["2xx", "5xx"], method = ["GET", "POST"] }
            [[counter]]
            name = "sent"
            unit = "bytes"
            single_writer = true
            [[gauge]]
            name = "load"
            type = "f64"
            rollup = "max"
            lifetime = "region"
            [[snapshot]]
            name = "engine"
            shared = true
            stale_after = "30s"
            family = { engine = ["0", "1"] }
            gauge = [{ name = "running", type = "u64" }, { name = "kv", type = "f64", rollup = "mean" }]
            "#,
        )
        .unwrap();
        assert_eq!(schema.named("requests").count(), 4);
        assert!(schema.find("requests", &[("method", "POST"), ("status", "5xx")]).is_some());
        assert_eq!(schema.snapshots().len(), 2);
        assert_eq!(schema.snapshots()[1].stale_after_ns, 30_000_000_000);
        let id = schema.find("kv", &[("engine", "1")]).unwrap();
        assert_eq!(schema[id].rollup, Rollup::Mean);
        let id = schema.find("load", &[]).unwrap();
        assert_eq!(schema[id].lifetime, Lifetime::Region);
    }

    #[test]
    fn the_documented_file_and_the_example_s_are_schemas() {
        let page = include_str!("../../docs/schema-file.md");
        let block = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        let schema = parse(block).unwrap();
        assert_eq!(schema.named("requests").count(), 6);
        assert_eq!(schema.snapshots().len(), 2);
        parse(include_str!("../../examples/foreign/schema.toml")).unwrap();
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let fault = |text: &str| parse(text).unwrap_err();
        assert!(fault("namespace = \"n\"\ncounters = []").starts_with("line 2: unknown field"));
        assert!(fault("namespace =").starts_with("line 1: "));
        assert!(fault("namespace = \"n\"").contains("number of records"));
        let gauge = "namespace = \"n\"\n[[gauge]]\nname = \"g\"\ntype = \"u32\"\n";
        assert!(fault(gauge).starts_with("line 4: unknown variant `u32`"), "{}", fault(gauge));
        let counter = "namespace = \"n\"\n[[counter]]\nname = \"x_total\"";
        assert!(fault(counter).contains("_total"), "{}", fault(counter));
        let stale = "namespace = \"n\"\n[[snapshot]]\nname = \"s\"\nstale_after = \"soon\"\n\
                     gauge = [{ name = \"g\", type = \"u64\" }]";
        assert!(fault(stale).starts_with("stale_after of s"), "{}", fault(stale));
    }
}
