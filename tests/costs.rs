//! What must cost nothing, or next to nothing: allocations on hot paths, and bytes of a slot.
//!
//! A binary of its own, since it counts every allocation of its process.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use shmstats::schema::{CounterDef, GaugeDef, SnapshotDef};
use shmstats::{Inspector, Region, Schema, llm, monotonic_ns};

/// Counts the allocations of each thread, so that the test harness' own do not matter.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count_one() {
    // A thread that is being torn down has no counter any more, and runs no test either.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every method hands its arguments to `System` unchanged, and counting allocates nothing:
// the counter is a plain `Cell` that needs no initialization and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_one();
        // SAFETY: the caller keeps `GlobalAlloc::alloc`'s contract, which is `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_one();
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_one();
        // SAFETY: as in `alloc`; `pointer` came from `System`, as all of ours do.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as in `realloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many allocations this thread makes in `work`.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn schema() -> Schema {
    Schema::builder("costs")
        .counter("drained")
        .counter(CounterDef::new("single").single_writer())
        .gauge(GaugeDef::u64("lone"))
        .gauge(GaugeDef::i64("in_flight"))
        .snapshot(SnapshotDef::new("own").gauge(GaugeDef::f64("load")))
        .snapshot(
            SnapshotDef::new("engine").shared().label("engine", "0").gauge(GaugeDef::u64("n")),
        )
        .build()
        .unwrap()
}

#[test]
fn the_counter_of_allocations_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1_u8]))), 1);
    assert_eq!(allocations(|| ()), 0);
}

#[test]
fn hot_paths_allocate_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("costs.shmstats");
    let region = Region::create(&path, &schema(), 4).unwrap();
    let server = region.claim(0).unwrap();
    let drained = server.counter("drained").unwrap();
    let mut single = server.single_writer("single").unwrap();
    let lone = server.gauge::<u64>("lone").unwrap();
    let in_flight = server.gauge::<i64>("in_flight").unwrap();
    let mut own = server.snapshot("own", &[]).unwrap();
    let load = own.field::<f64>("load").unwrap();
    let mut engine = server.snapshot("engine", &[("engine", "0")]).unwrap();
    let n = engine.field::<u64>("n").unwrap();
    let mut primary = region.primary().unwrap();
    let mut interval = primary.interval();
    let mut inspector = Inspector::open(&path).unwrap();

    let mut count = || {
        drained.add(2);
        single.add(3);
    };
    let mut publish = || {
        lone.set(4);
        in_flight.add(1);
        drop(in_flight.in_flight());
        own.set(load, 0.5);
        own.publish();
        engine.set(n, 6);
        engine.publish_at(monotonic_ns());
        server.heartbeat();
    };
    count();
    publish();
    primary.drain_into(&mut interval);
    inspector.totals();

    assert_eq!(allocations(&mut count), 0, "add");
    assert_eq!(allocations(&mut publish), 0, "set and publish");
    assert_eq!(allocations(|| primary.drain_into(&mut interval)), 0, "drain_into");
    assert_eq!((interval.delta("drained"), interval.delta("single")), (2, 3));
    assert_eq!(allocations(|| drop(primary.probe().map(<[_]>::len))), 0, "probe");
    assert_eq!(allocations(|| primary.drain_into(&mut interval)), 0, "drain_into, idle");
    let totals = allocations(|| {
        inspector.totals();
    });
    assert_eq!(totals, 0, "totals");
    assert_eq!(inspector.last_totals().get("drained"), 4);
}

#[test]
fn a_recorder_of_the_llm_preset_allocates_nothing() {
    let region = Region::private(&llm::schema(2).unwrap(), 1);
    let server = region.claim(0).unwrap();
    let recorder = llm::Recorder::new(&server).unwrap();
    let scheduler = llm::SchedulerStats { running: 1, ..Default::default() };
    let iteration = llm::IterationStats { prompt_tokens: 7, ..Default::default() };
    let record = || recorder.record(1, Some(&scheduler), Some(&iteration));
    assert_eq!(allocations(record), 0);
}

#[test]
fn a_slot_of_the_llm_preset_takes_at_most_1024_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("llm.shmstats");
    let _region = Region::create(&path, &llm::schema(1).unwrap(), 4).unwrap();
    let head = Inspector::open(&path).unwrap().region();
    assert!(head.slot_size <= 1024, "{} bytes", head.slot_size);
    // Nothing beyond the slots but the head, which does not grow with them.
    let slots = head.slot_size * u64::from(head.slot_count);
    assert!(
        head.file_size - slots <= 16 << 10,
        "{} bytes before the slots",
        head.file_size - slots
    );
}
