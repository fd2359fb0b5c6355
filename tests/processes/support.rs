//! What the tests share: the schema, a region in a folder of its own, waiting with a limit.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use shmstats::schema::{CounterDef, GaugeDef, Lifetime, SnapshotDef};
use shmstats::{Primary, Region, Schema, Server};
use tempfile::TempDir;

/// No test waits longer than this for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn schema() -> Schema {
    let load = |name| {
        SnapshotDef::new(name)
            .gauge(GaugeDef::u64(format!("{name}_running")))
            .gauge(GaugeDef::u64(format!("{name}_waiting")))
            .gauge(GaugeDef::f64(format!("{name}_kv")).mean())
    };
    let engine = |i: &str| {
        SnapshotDef::new("engine")
            .shared()
            .label("engine", i)
            .gauge(GaugeDef::u64("running"))
            .gauge(GaugeDef::f64("kv").mean())
    };
    Schema::builder("test")
        .counter("prompt")
        .counter("generation")
        .counter("preemptions")
        .counter("corrupted")
        .counter(CounterDef::new("single").single_writer())
        .gauge(GaugeDef::i64("in_flight"))
        .snapshot(load("load"))
        .snapshot(load("kept").lifetime(Lifetime::Region))
        .snapshot(engine("0"))
        .snapshot(engine("1"))
        .build()
        .expect("a valid schema")
}

/// A region in a folder that goes with it.
pub(crate) struct Place {
    pub(crate) region: Region,
    folder: TempDir,
}

impl Place {
    pub(crate) fn new(servers: u32) -> Self {
        // In memory, as regions are in use; the system's folder for temporary files may be a disk.
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in /dev/shm");
        let path = folder.path().join("test.shmstats");
        let region = Region::create(path, &schema(), servers).expect("a region");
        Place { region, folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("test.shmstats")
    }

    /// The region, and the folder that goes when it is dropped.
    pub(crate) fn into_parts(self) -> (Region, TempDir) {
        (self.region, self.folder)
    }

    pub(crate) fn primary(&self) -> Primary {
        self.region.primary().expect("the primary lease")
    }
}

/// Counts prompt and generation tokens and publishes a load, as the model's `record` does.
pub(crate) fn record(server: &Server, prompt: u64, generation: u64, running: u64) {
    server.counter("prompt").expect("a counter").add(prompt);
    server.counter("generation").expect("a counter").add(generation);
    publish_load(server, "load", running, 0, None);
}

pub(crate) fn publish_load(
    server: &Server,
    name: &str,
    running: u64,
    waiting: u64,
    kv: Option<f64>,
) {
    let mut load = server.snapshot(name, &[]).expect("a snapshot");
    let running_field = load.field(&format!("{name}_running")).expect("a field");
    let waiting_field = load.field(&format!("{name}_waiting")).expect("a field");
    load.set(running_field, running);
    load.set(waiting_field, waiting);
    if let Some(kv) = kv {
        let field = load.field(&format!("{name}_kv")).expect("a field");
        load.set(field, kv);
    }
    load.publish();
}

pub(crate) fn publish_engine(server: &Server, engine: &str, running: u64, kv: f64) {
    let mut snapshot = server.snapshot("engine", &[("engine", engine)]).expect("a snapshot");
    let (running_field, kv_field) =
        (snapshot.field("running").expect("a field"), snapshot.field("kv").expect("a field"));
    snapshot.set(running_field, running);
    snapshot.set(kv_field, kv);
    snapshot.publish();
}

/// Asks again and again until the answer is yes; for states that nothing announces.
pub(crate) fn until(what: &str, mut answer: impl FnMut() -> bool) {
    let start = Instant::now();
    while !answer() {
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} in vain for {what}");
        std::thread::yield_now();
    }
}
