//! A region that is older than the machine's uptime, and clocks that are not what they were.

use std::sync::atomic::Ordering;
use std::time::Duration;

use shmstats::{Inspector, Region, Schema, SlotState};

use crate::ack::Raw;
use crate::actor::{Actor, Role, heard, say};
use crate::support::{Place, publish_engine, publish_load, schema};

tests![
    reused_after_a_reboot,
    all_servers_start_at_once_after_a_reboot,
    a_wall_clock_stepped_back,
    another_schema_after_a_reboot,
];

/// Those that need a time namespace.
pub(crate) mod as_root {
    use super::*;
    tests![another_monotonic_clock];
}

pub(crate) const ROLES: &[Role] = &[("late", late), ("in_other_time", in_other_time)];

/// Where words lie, as docs/format.md says.
const REGION_BLOCK: usize = 256 / 8;
const RESET_AT: usize = REGION_BLOCK + 1;
const BOOT_ID: usize = REGION_BLOCK + 2;
const PRIMARY_BLOCK: usize = 512 / 8;
const CLAIMED_AT: usize = PRIMARY_BLOCK + 3;
const DRAINED_AT: usize = PRIMARY_BLOCK + 5;

/// A month of uptime that the machine has not yet had again.
const MONTH: u64 = 30 * 86_400 * 1_000_000_000;

/// Counts, publishes and drains; then everybody is gone, and the machine has been started again.
fn before_the_reboot(place: Place) -> (std::path::PathBuf, tempfile::TempDir) {
    let server = place.region.claim(0).expect("a slot");
    server.counter("prompt").expect("a counter").add(40);
    let mut primary = place.primary();
    assert_eq!(primary.drain().delta("prompt"), 40);
    server.counter("prompt").expect("a counter").add(2);
    server.single_writer("single").expect("a counter").add(7);
    server.gauge::<i64>("in_flight").expect("a gauge").set(5);
    publish_load(&server, "load", 3, 0, None);
    publish_load(&server, "kept", 4, 0, None);
    publish_engine(&server, "0", 6, 0.5);
    drop((server, primary));
    let path = place.path();
    let (region, folder) = place.into_parts();
    drop(region);
    let raw = Raw::open(&path);
    let word = |i: usize| raw.word(i);
    assert_ne!(word(BOOT_ID).load(Ordering::Relaxed), 0, "the offset is right");
    word(BOOT_ID).fetch_xor(0xabcd_0000, Ordering::Relaxed);
    for time in [RESET_AT, CLAIMED_AT, DRAINED_AT] {
        word(time).fetch_add(MONTH, Ordering::Relaxed);
    }
    // Every time of a slot, wherever it lies: all words that look like one.
    let now = shmstats::monotonic_ns();
    for i in 4096 / 8..raw.len() {
        let value = word(i).load(Ordering::Relaxed);
        if (now / 2..=now).contains(&value) {
            word(i).store(value + MONTH, Ordering::Relaxed);
        }
    }
    (path, folder)
}

fn reused_after_a_reboot() {
    let (path, _folder) = before_the_reboot(Place::new(2));
    let mut inspector = Inspector::open(&path).expect("an inspector");
    let observation = inspector.observe().expect("an observation");
    assert!(!observation.this_boot);
    assert_eq!((inspector.totals().get("prompt"), inspector.totals().get("single")), (42, 7));
    let names = ["in_flight", "load_running", "kept_running", "running"];
    assert!(names.iter().all(|name| observation.gauge(name).is_none()), "of no time we know");
    let ages = (observation.reset_age, observation.primary.drained, observation.owners[0].heard);
    assert_eq!(ages, (None, None, None));

    let region = Region::open_or_create(&path, &schema(), 2).expect("the same schema");
    let server = region.claim(0).expect("a slot");
    let mut primary = region.primary().expect("the primary lease");
    let interval = primary.drain();
    assert_eq!((interval.delta("prompt"), interval.delta("single")), (2, 7), "not drained yet");
    assert!(interval.elapsed() < Duration::from_secs(600), "{:?}", interval.elapsed());
    assert!(interval.rate("prompt").is_finite());
    assert!(names.iter().all(|name| interval.gauge(name).is_none()));
    // An engine's new value counts, though the one of the last boot has a later time.
    publish_engine(&server, "0", 1, 0.25);
    let interval = primary.drain();
    assert_eq!(interval.gauge("running"), Some(1.0));
    let observation = inspector.observe().expect("an observation");
    assert!(observation.this_boot);
    assert_eq!(observation.reset_number, 1);
    assert!(observation.reset_age.expect("an age") < Duration::from_secs(600));
    assert!(observation.primary.drained.expect("an age") < Duration::from_secs(600));
    assert_eq!(inspector.totals().get("prompt"), 42);
}

/// At a line: opens the region, claims a slot, sets its gauge once.
fn late(arguments: &[String]) {
    say("ready");
    let _ = heard();
    let region = Region::open(&arguments[0]).expect("the region");
    let server = region.claim_any().expect("a slot");
    server.gauge::<i64>("in_flight").expect("a gauge").set(1);
    say("ok");
    let _ = heard();
}

/// What one of them sets is not hidden by another that comes a little later.
fn all_servers_start_at_once_after_a_reboot() {
    for _ in 0..crate::dice::times(20) {
        let (path, _folder) = before_the_reboot(Place::new(8));
        let mut servers: Vec<_> = (0..8).map(|_| Actor::start("late", &[&path])).collect();
        servers.iter_mut().for_each(|server| assert_eq!(server.answer(), "ready"));
        servers.iter_mut().for_each(|server| server.send("go"));
        servers.iter_mut().for_each(|server| assert_eq!(server.answer(), "ok"));
        let mut inspector = Inspector::open(&path).expect("an inspector");
        let observation = inspector.observe().expect("an observation");
        assert_eq!(observation.reset_number, 1, "adopted once");
        assert_eq!(observation.gauge("in_flight"), Some(8.0), "of all of them");
    }
}

/// The only time of the wall clock is when the region was created; it may lie ahead.
fn a_wall_clock_stepped_back() {
    let place = Place::new(1);
    let mut inspector = Inspector::open(place.path()).expect("an inspector");
    let created = inspector.region().created_at;
    assert!(created > Duration::from_secs(1_600_000_000), "since 1970");
    // Found by its value; the header's checksum is its last word's upper half.
    let raw = Raw::open(&place.path());
    let bytes = |raw: &Raw| -> Vec<u8> {
        let words = (0..REGION_BLOCK).map(|i| raw.word(i).load(Ordering::Relaxed));
        words.flat_map(u64::to_ne_bytes).collect()
    };
    let nanoseconds = created.as_nanos() as u64;
    let at = (0..REGION_BLOCK).find(|i| raw.word(*i).load(Ordering::Relaxed) == nanoseconds);
    let hour = 3600 * 1_000_000_000;
    raw.word(at.expect("the time")).store(nanoseconds + hour, Ordering::Relaxed);
    let checksum = crc32fast::hash(&bytes(&raw)[..252]);
    let last = raw.word(REGION_BLOCK - 1);
    let low = last.load(Ordering::Relaxed) & 0xffff_ffff;
    last.store(low | u64::from(checksum) << 32, Ordering::Relaxed);
    let mut later = Inspector::open(place.path()).expect("a region of the future");
    assert_eq!(later.region().created_at, created + Duration::from_secs(3600));
    let server = place.region.claim(0).expect("a slot");
    server.counter("prompt").expect("a counter").add(1);
    assert!(place.primary().drain().elapsed() < Duration::from_secs(600), "monotonic");
    let observation = later.observe().expect("an observation");
    assert!(observation.owners[0].heard.expect("an age") < Duration::from_secs(600));
    let _ = inspector.observe().expect("an observation");
}

fn another_schema_after_a_reboot() {
    let (path, _folder) = before_the_reboot(Place::new(1));
    let other = Schema::builder("test").counter("prompt").build().expect("a schema");
    let region = Region::open_or_create(&path, &other, 1).expect("nobody is attached");
    let mut inspector = region.inspector().expect("an inspector");
    assert_eq!(inspector.totals().get("prompt"), 0, "a region of its own");
    let refused = Region::open_or_create(&path, &schema(), 1).expect_err("in use");
    assert!(refused.to_string().contains("generation"), "names the difference: {refused}");
}

/// Region: a server whose monotonic clock is another one.
fn in_other_time(arguments: &[String]) {
    let region = Region::open(&arguments[0]).expect("the region");
    let server = region.claim(1).expect("a slot");
    server.counter("prompt").expect("a counter").add(3);
    publish_load(&server, "load", 2, 0, None);
    let mut inspector = region.inspector().expect("an inspector");
    let observation = inspector.observe().expect("an observation");
    assert_eq!(observation.states[1], SlotState::Alive);
    // The other server's times lie in this one's future, or far in its past.
    for owner in &observation.owners {
        let _ = owner.heard.map(|age| assert!(age < Duration::from_secs(20 * 365 * 86_400)));
    }
    say(shmstats::monotonic_ns());
    let _ = heard();
}

/// As a container that was restored, or has a time namespace: its clock is behind, or far ahead. It
/// counts rightly; what it publishes of a time to come is left out.
fn another_monotonic_clock() {
    for (ahead, running) in [("1000000", 1.0), ("-10", 3.0)] {
        let place = Place::new(2);
        let server = place.region.claim(0).expect("a slot");
        publish_load(&server, "load", 1, 0, None);
        let options = ["--time", "--monotonic", ahead, "--fork", "--kill-child"];
        let command = crate::namespaces::command(&options, "in_other_time", &[&place.path()]);
        let mut actor = Actor::spawn(command);
        let theirs: u64 = actor.answer().parse().expect("a time");
        let ours = shmstats::monotonic_ns();
        assert!(theirs.abs_diff(ours) > 5_000_000_000, "another clock: {theirs}, here {ours}");
        let mut primary = place.primary();
        let interval = primary.drain();
        assert_eq!((interval.delta("prompt"), interval.gauge("load_running")), (3, Some(running)));
        assert!(interval.elapsed() < Duration::from_secs(600));
        let mut inspector = place.region.inspector().expect("an inspector");
        let heard = inspector.observe().expect("an observation").owners[1].heard;
        assert!(heard.expect("an age") < Duration::from_secs(600), "never negative, so never huge");
        assert!(actor.end().success());
    }
}
