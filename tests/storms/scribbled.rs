//! Whoever may write to a region can make its numbers wrong, and nothing else: no panic, no hang,
//! no signal sent and no file removed on the word of what is written there.

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shmstats::{Error, Inspector, Region, Server, StatLogger};

use crate::ack::Raw;
use crate::actor::{Actor, Role};
use crate::dice::{Dice, times};
use crate::kills::SetOnDrop;
use crate::support::{Place, schema};

tests![a_live_region_is_scribbled_over, owners_that_never_were, a_truncated_file];

pub(crate) const ROLES: &[Role] = &[("sentinel", sentinel), ("counting", counting)];

/// Somebody who has nothing to do with the region but for what is written there.
fn sentinel(_: &[String]) {
    crate::actor::say("ok");
    while crate::actor::heard().is_some() {}
}

/// Where words lie, as docs/format.md says: the header, the blocks of the region and the primary,
/// then tables and strings, then slots.
const HEADER: usize = 256 / 8;
const BLOCKS: usize = (640 - 256) / 8;
const SLOTS: usize = 4096 / 8;

/// Values that are in somebody's way: small, huge, odd, even, negative, NaN, and the pid of one who
/// has nothing to do with it.
fn bad_word(dice: &mut Dice, pid: u64) -> u64 {
    match dice.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::MAX - 1,
        3 => 1 << 63,
        4 => f64::NAN.to_bits(),
        5 => dice.below(16),
        6 => pid,
        _ => dice.below(u64::MAX),
    }
}

/// Everything that reads a region, in one loop.
fn use_all(place: &Place, server: &Server, stop: &AtomicBool) -> u64 {
    let mut primary = place.primary();
    let mut inspector = Inspector::open(place.path()).expect("an inspector");
    let mut watch = Inspector::open(place.path()).expect("an inspector").watch();
    let counter = server.counter("prompt").expect("a counter");
    let gauge = server.gauge::<i64>("in_flight").expect("a gauge");
    let mut line = shmstats::logger::GenericLine::default();
    let mut rounds = 0;
    while !stop.load(Ordering::Acquire) {
        let start = Instant::now();
        counter.inc();
        gauge.add(1);
        crate::support::publish_load(server, "load", 1, 2, Some(0.5));
        server.heartbeat();
        primary.probe().expect("who is alive");
        let interval = primary.drain();
        let _ = shmstats::logger::Line::line(&mut line, &interval);
        let _ = format!("{interval:?} {:?}", primary.peek());
        let _ = (interval.ratio("prompt", "generation"), interval.rate("prompt"));
        let _ = format!("{:?}", inspector.totals());
        let observation = inspector.observe().expect("an observation");
        for owner in &observation.owners {
            let _ = owner.is_stopped();
        }
        let _ = format!("{observation:?} {:?}", watch.interval());
        let schema = inspector.schema().clone();
        for name in ["in_flight", "load_running", "load_kv", "running", "kv"] {
            let _ = (observation.gauge(name), interval.gauge(name));
            for id in schema.named(name) {
                let _ = (observation.gauge_of(id), interval.age_of(id));
            }
        }
        if rounds % 64 == 0 {
            primary.reset();
            drop(place.region.claim(1).expect("a slot that nobody holds"));
            drop(Region::open(place.path()).expect("the head is whole"));
            drop(StatLogger::builder(server).build());
        }
        rounds += 1;
        assert!(start.elapsed() < Duration::from_secs(30), "a round took {:?}", start.elapsed());
    }
    drop(primary);
    // The next one settles whatever is there.
    drop(place.primary());
    rounds
}

fn a_live_region_is_scribbled_over() {
    let place = Place::new(2);
    let mut sentinel = Actor::start("sentinel", &[]);
    assert_eq!(sentinel.answer(), "ok");
    let pid = sentinel.pid().as_raw() as u64;
    let server = place.region.claim(0).expect("a slot");
    let stop = AtomicBool::new(false);
    let (writes, rounds) = std::thread::scope(|scope| {
        let user = scope.spawn(|| use_all(&place, &server, &stop));
        let guard = SetOnDrop(&stop);
        let raw = Raw::open(&place.path());
        let mut dice = Dice::new();
        let start = Instant::now();
        let mut writes = 0u64;
        while start.elapsed() < Duration::from_secs(u64::from(times(5))) && !user.is_finished() {
            for _ in 0..64 {
                // The tables are another matter: they are checked by whoever opens the file.
                let at = match dice.below(4) {
                    0 => HEADER + dice.below(BLOCKS as u64) as usize,
                    _ => SLOTS + dice.below((raw.len() - SLOTS) as u64) as usize,
                };
                raw.word(at).store(bad_word(&mut dice, pid), Ordering::Relaxed);
            }
            writes += 64;
            std::thread::yield_now();
        }
        drop(guard);
        (writes, user.join().expect("no panic"))
    });
    assert!(sentinel.is_running(), "a signal was sent to a pid read from the region");
    assert!(place.path().exists() && !place.region.is_removed());
    println!("{writes} words scribbled beside {rounds} rounds of everything: no panic, no hang");
}

/// Pids and states of owners that never were do not keep a region from being removed, nor let one
/// be removed that is in use.
fn owners_that_never_were() {
    let place = Place::new(2);
    let mut sentinel = Actor::start("sentinel", &[]);
    assert_eq!(sentinel.answer(), "ok");
    let raw = Raw::open(&place.path());
    // Every word of every block and slot: the pid of one who lives and is no owner.
    for at in (HEADER..HEADER + BLOCKS).chain(SLOTS..raw.len()) {
        raw.word(at).store(sentinel.pid().as_raw() as u64, Ordering::Relaxed);
    }
    let mut inspector = Inspector::open(place.path()).expect("an inspector");
    let observation = inspector.observe().expect("an observation");
    assert_eq!(observation.owners[0].pid, sentinel.pid().as_raw() as u64);
    let alive = shmstats::SlotState::Alive;
    assert!(observation.states.iter().all(|state| *state != alive), "leases say who lives");
    assert!(!observation.primary.alive);
    let refused = Region::open(place.path()).expect("the region").remove();
    assert!(matches!(refused, Err(Error::Held { .. })), "this test is attached: {refused:?}");
    let (path, folder) = (place.path(), place.into_parts());
    drop(folder.0);
    Region::open(&path).expect("the region").remove().expect("nobody is attached");
    assert!(!path.exists());
    assert!(sentinel.is_running());
    drop(Region::open_or_create(&path, &schema(), 2).expect("a new one"));
}

fn counting(arguments: &[String]) {
    let region = Region::open(&arguments[0]).expect("the region");
    let counter = region.claim(0).expect("a slot").counter("prompt").expect("a counter");
    crate::actor::say("ok");
    loop {
        counter.inc();
    }
}

/// What SECURITY.md says: who truncates a region in use ends its servers by SIGBUS; whoever comes
/// later gets an error.
fn a_truncated_file() {
    let place = Place::new(1);
    let path = place.path();
    let (region, _folder) = place.into_parts();
    drop(region);
    let mut server = Actor::start("counting", &[&path]);
    assert_eq!(server.answer(), "ok");
    let file = std::fs::File::options().write(true).open(&path).expect("the file");
    file.set_len(0).expect("another length");
    let signal = server.end().signal();
    assert_eq!(signal, Some(nix::sys::signal::Signal::SIGBUS as i32));
    for refused in [Region::open(&path).err(), Inspector::open(&path).err()] {
        let refused = refused.expect("no region any more");
        assert!(matches!(refused, Error::InvalidRegion { .. }), "{refused}");
    }
}
