//! What the cases share: where regions live, how long to measure, bare memory to compare with.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use memmap2::MmapMut;
use shmstats::schema::{CounterDef, GaugeDef, SnapshotDef};
use shmstats::{Region, Schema, Server};
use tempfile::TempDir;

/// One run of the bench.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Regions are made here: in memory, as in production.
    pub(crate) folder: TempDir,
    /// How long to sample one group of cases.
    pub(crate) time: Duration,
    /// Fewer repetitions of what takes its own time.
    pub(crate) quick: bool,
}

impl Setting {
    pub(crate) fn new(quick: bool) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Setting {
            folder: folder.expect("a folder for regions"),
            time: Duration::from_millis(if quick { 400 } else { 3_000 }),
            quick,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.shmstats"))
    }

    /// A region of so many slots, all of them claimed.
    pub(crate) fn full_region(
        &self,
        name: &str,
        schema: &Schema,
        slots: u32,
    ) -> (Region, Vec<Server>) {
        let region = Region::options(slots)
            .slots(slots)
            .create(self.path(name), schema)
            .expect("room for a region");
        let claim = |slot| region.claim(slot).expect("a free slot");
        let servers = (0..slots).map(claim).collect();
        (region, servers)
    }
}

/// So many drained counters, `c0` and on.
pub(crate) fn counters(count: usize) -> Schema {
    let builder = (0..count).fold(Schema::builder("bench"), |builder, n| {
        builder.counter(CounterDef::new(format!("c{n}")).help("Counted by the bench"))
    });
    builder.build().expect("a valid schema")
}

/// Five counters of each kind, a lone gauge, and a snapshot of four values.
pub(crate) fn everything() -> Schema {
    let builder = (0..5).fold(Schema::builder("bench"), |builder, n| {
        builder
            .counter(CounterDef::new(format!("c{n}")))
            .counter(CounterDef::new(format!("s{n}")).single_writer())
    });
    let snapshot = ["v0", "v1", "v2", "v3"]
        .iter()
        .fold(SnapshotDef::new("load"), |snapshot, name| snapshot.gauge(GaugeDef::u64(*name)));
    let builder = builder.gauge(GaugeDef::u64("lone")).snapshot(snapshot);
    builder.build().expect("a valid schema")
}

/// Mapped words of the bench's own, shared as a region's are.
pub(crate) fn bare_words(count: usize) -> &'static [AtomicU64] {
    let mut map =
        memmap2::MmapOptions::new().len(count * 8).map_anon().expect("memory to compare with");
    let words = map.as_mut_ptr().cast::<AtomicU64>();
    // For the rest of the run.
    std::mem::forget::<MmapMut>(map);
    // SAFETY: the mapping holds `count` words, is aligned to a page, zeroed and never unmapped.
    unsafe { std::slice::from_raw_parts(words, count) }
}
