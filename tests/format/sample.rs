//! A schema with a record of every kind: that of the golden file.

use super::schema::{CounterDef, GaugeDef, Lifetime, Rollup, Schema, SnapshotDef};
use std::time::Duration;

pub(crate) fn schema() -> Schema {
    let requests = CounterDef::new("requests").help("Requests answered").label("model", "m \"1\"");
    let engine = |name: &str| {
        SnapshotDef::new("engine")
            .shared()
            .label("engine", name)
            .gauge(GaugeDef::u64("running"))
            .gauge(GaugeDef::f64("kv_usage").unit("ratio").mean())
    };
    Schema::builder("golden")
        .counter(requests.family("status", ["ok", "error"]))
        .counter(CounterDef::new("sent").single_writer().unit("bytes").help("Größe\nder Antworten"))
        .gauge(GaugeDef::u64("workers").rollup(Rollup::Max))
        .gauge(GaugeDef::i64("in_flight"))
        .gauge(GaugeDef::f64("temperature").rollup(Rollup::Min).lifetime(Lifetime::Region))
        .snapshot(
            SnapshotDef::new("process")
                .gauge(GaugeDef::u64("threads").label("state", "running"))
                .gauge(GaugeDef::i64("balance")),
        )
        .snapshot(engine("0"))
        .snapshot(engine("1"))
        .snapshot(
            SnapshotDef::new("cache")
                .shared()
                .stale_after(Duration::from_nanos(1))
                .gauge(GaugeDef::u64("entries")),
        )
        .build()
        .expect("a valid schema")
}
