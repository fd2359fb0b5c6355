//! Who holds what: one owner per slot, one primary, and nobody attached to what is removed.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shmstats::{Error, Region, SlotState};

use crate::support::{Place, schema, until};
use crate::worker::Worker;

tests![
    two_processes_want_one_slot,
    two_processes_want_to_be_primary,
    a_killed_owner_makes_room,
    a_handle_keeps_its_slot,
    free_slots_run_out,
    who_is_attached_is_not_removed,
    another_schema,
    a_removed_file_is_noticed,
    one_writer_per_record,
    a_stopped_server_is_seen,
    a_field_of_another_snapshot_has_no_place,
    numbers_out_of_range,
];

fn two_processes_want_one_slot() {
    let place = Place::new(2);
    let first = Worker::with_slot(&place.path(), 0);
    let mut second = Worker::start(&place.path());
    let refusal = second.ask("claim 0");
    assert!(refusal.contains("slot 0") && refusal.contains("another process"), "{refusal}");
    assert!(refusal.contains(&first.pid().to_string()), "names the holder: {refusal}");
    second.ok("claim 1");
    let refusal = second.ask("claim 1");
    assert!(refusal.contains("already held by this process"), "{refusal}");
}

fn two_processes_want_to_be_primary() {
    let place = Place::new(1);
    let primary = place.primary();
    let refusal = place.region.primary().expect_err("one primary");
    assert!(matches!(refusal, Error::Held { by_this_process: true, .. }), "{refusal}");
    let mut other = Worker::start(&place.path());
    let refusal = other.ask("primary");
    assert!(refusal.contains("primary lease") && refusal.contains("another process"), "{refusal}");
    drop(primary);
    other.ok("primary");
    let refusal = place.region.primary().expect_err("one primary");
    assert!(matches!(refusal, Error::Held { by_this_process: false, .. }), "{refusal}");
    other.kill();
    drop(place.primary());
}

fn a_killed_owner_makes_room() {
    let place = Place::new(1);
    for _ in 0..20 {
        Worker::with_slot(&place.path(), 0).kill();
        drop(place.region.claim(0).expect("a slot whose owner was reaped"));
    }
    let mut inspector = place.region.inspector().expect("an inspector");
    let observation = inspector.observe().expect("an observation");
    assert_eq!(observation.states[0], SlotState::Released);
    assert_eq!(observation.owners[0].generation, 80, "two for each of 40 claims");
}

fn a_handle_keeps_its_slot() {
    let place = Place::new(1);
    let server = place.region.claim(0).expect("a slot");
    let counter = server.counter("prompt").expect("a counter");
    drop(server);
    let mut other = Worker::start(&place.path());
    assert!(other.ask("claim 0").starts_with("error"), "the counter still writes there");
    counter.add(1);
    drop(counter);
    other.ok("claim 0");
}

fn free_slots_run_out() {
    let place = Place::new(1);
    let mut workers: Vec<_> = (0..3).map(|_| Worker::start(&place.path())).collect();
    assert_eq!(place.region.slot_count(), 2, "twice the servers");
    workers[0].ok("claim_any");
    workers[1].ok("claim_any");
    assert!(workers[2].ask("claim_any").contains("all 2 slots are held"));
    let mut inspector = place.region.inspector().expect("an inspector");
    assert_eq!(inspector.observe().expect("an observation").refused_servers, 1);
    drop(workers.remove(0));
    until("the kernel to give the slot back", || workers[1].ask("claim_any") == "ok");
}

fn who_is_attached_is_not_removed() {
    let place = Place::new(1);
    let worker = Worker::with_slot(&place.path(), 0);
    let refusal = Region::open(place.path()).expect("the region").remove().expect_err("in use");
    assert!(matches!(refusal, Error::Held { by_this_process: false, .. }), "{refusal}");
    assert!(place.path().exists());
    worker.kill();
    let path = place.path();
    place.region.clone().remove().expect_err("two handles of this process");
    place.region.remove().expect("nobody else is attached");
    assert!(!path.exists());
}

fn another_schema() {
    let place = Place::new(1);
    let other = shmstats::Schema::builder("test").counter("other").build().expect("a schema");
    let worker = Worker::with_slot(&place.path(), 0);
    let refusal = Region::open_or_create(place.path(), &other, 1).expect_err("in use");
    let text = refusal.to_string();
    assert!(matches!(refusal, Error::SchemaMismatch { .. }), "{text}");
    assert!(text.contains("other") && text.contains("prompt"), "names the difference: {text}");
    let private = Region::options(1).open_or_private(place.path(), &other);
    assert!(private.is_private(), "serving goes on");
    worker.kill();
    let Place { region, .. } = &place;
    let reused = Region::open_or_create(place.path(), &schema(), 1).expect("the same schema");
    assert_eq!(reused.schema(), region.schema());
    drop(reused);
    let path = place.path();
    let (region, folder) = place.into_parts();
    drop(region);
    let replaced = Region::open_or_create(&path, &other, 1).expect("nobody is attached");
    assert_eq!(replaced.schema(), &other);
    drop(folder);
}

fn a_removed_file_is_noticed() {
    let place = Place::new(1);
    let mut worker = Worker::with_slot(&place.path(), 0);
    std::fs::remove_file(place.path()).expect("to remove it by hand");
    assert!(place.region.is_removed());
    worker.ok("record 1 5 0 0");
    assert_eq!(place.primary().drain().delta("prompt"), 5, "its servers go on");
    let refusal = worker.ask("claim 1");
    assert!(refusal.contains("was removed"), "{refusal}");
}

fn one_writer_per_record() {
    let place = Place::new(1);
    let server = place.region.claim(0).expect("a slot");
    let single = server.single_writer("single").expect("a handle");
    let refusal = server.single_writer("single").expect_err("one writer");
    assert!(matches!(refusal, Error::Held { by_this_process: true, .. }), "{refusal}");
    let load = server.snapshot("load", &[]).expect("a handle");
    server.snapshot("load", &[]).expect_err("one writer");
    drop(server.snapshot("kept", &[]).expect("another snapshot"));
    drop((single, load));
    drop(server.single_writer("single").expect("free again"));
    drop(server.snapshot("load", &[]).expect("free again"));
    let unknown = server.counter("promt").expect_err("a typing error").to_string();
    assert!(unknown.contains("promt") && unknown.contains("prompt"), "{unknown}");
    let wrong = server.counter("in_flight").expect_err("a gauge").to_string();
    assert!(wrong.contains("it is a i64 gauge"), "{wrong}");
}

/// It keeps its slot and its gauges: only onlookers are told.
fn a_stopped_server_is_seen() {
    let place = Place::new(1);
    let mut worker = Worker::with_slot(&place.path(), 0);
    worker.ok("record 1 1 1 4");
    let mut primary = place.primary();
    let pid = Pid::from_raw(worker.pid() as i32);
    let mut stopped = || {
        let interval = primary.peek();
        assert_eq!(interval.gauge("load_running"), Some(4.0));
        assert_eq!(interval.states()[0], SlotState::Alive);
        assert!(interval.silent_for(0).is_some());
        primary.probe().expect("the kernel's answer");
        primary.owner(0, &interval).is_stopped()
    };
    assert!(!stopped());
    kill(pid, Signal::SIGSTOP).expect("to stop a child not reaped yet");
    until("the server to be stopped", &mut stopped);
    kill(pid, Signal::SIGCONT).expect("to continue it");
    until("the server to go on", || !stopped());
    worker.ok("record 1 1 1 4");
}

fn a_field_of_another_snapshot_has_no_place() {
    let place = Place::new(1);
    let server = place.region.claim(0).expect("a slot");
    let mut load = server.snapshot("load", &[]).expect("a snapshot");
    let mut engine = server.snapshot("engine", &[("engine", "0")]).expect("a snapshot");
    let foreign = load.field::<f64>("load_kv").expect("a field");
    engine.set(foreign, 1.5);
    engine.unset(foreign);
    engine.publish();
    load.set(foreign, 0.5);
    load.publish();
    let interval = place.primary().drain();
    assert_eq!((interval.gauge("running"), interval.gauge("kv")), (None, None));
    assert_eq!(interval.gauge("load_kv"), Some(0.5));
    let mut inspector = place.region.inspector().expect("an inspector");
    assert_eq!(inspector.observe().expect("an observation").skipped_writes, 1);
}

/// Strict calls refuse them; the one that never fails goes on in private.
fn numbers_out_of_range() {
    let place = Place::new(1);
    for options in [Region::options(0), Region::options(1_000_000), Region::options(1).slots(0)] {
        let refusal = options.open_or_create(place.path(), &schema()).expect_err("out of range");
        assert!(refusal.to_string().contains("expected 1 to 4096"), "{refusal}");
        assert!(options.open_or_private(place.path(), &schema()).is_private());
    }
    assert_eq!(place.region.server_count(), 1, "nobody changed it");
    let many = place.path().with_extension("many");
    let region = Region::create(many, &schema(), 3000).expect("as many slots as there can be");
    assert_eq!(region.slot_count(), 4096);
    let regrown = Region::open_or_create(place.path(), &schema(), 2).expect("the same schema");
    assert_eq!(regrown.server_count(), 2, "a restart with more servers, which the slots allow");
    assert_eq!(place.region.server_count(), 2);
}
