//! What a forked child does with what it inherited harms nobody.
//!
//! Each role is one process that forks as a server might: with threads that count, claim or drain
//! at the time.
#![allow(unsafe_code)]

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use shmstats::{Counter, Error, Inspector, ProcessManager, Region, SlotState, StatLogger};

use crate::actor::{Actor, Role, say};
use crate::dice::Dice;
use crate::support::{Place, until};
use crate::worker::Worker;

tests![
    children_that_add_and_exit,
    children_of_a_process_that_claims,
    what_a_child_may_not_do,
    a_lease_ends_with_its_process,
    a_child_has_a_slot_of_its_own,
    a_signal_handler_adds,
    handles_outlive_their_server,
    a_launcher_forks,
    a_daemon_closes_everything,
];

pub(crate) const ROLES: &[Role] = &[
    ("forker", forker),
    ("forking_claimer", forking_claimer),
    ("forbidden", forbidden),
    ("parent_that_ends", parent_that_ends),
    ("own_slot", own_slot),
    ("signalled", signalled),
    ("launcher_that_forks", launcher_that_forks),
    ("daemon", daemon),
];

const FORKS: u64 = 200;

/// Forks; the child does `act` and ends, with no destructors and no exit handlers run.
fn child(act: impl FnOnce()) -> Pid {
    // SAFETY: other threads may hold the allocator's lock, which the C library puts right in the
    // child; nothing else that `act` uses is locked by them.
    match unsafe { fork() }.expect("a fork") {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).is_ok();
            // SAFETY: it ends this process, which is a copy that owes nobody any clean-up.
            unsafe { nix::libc::_exit(i32::from(!done)) }
        }
    }
}

fn wait_for(child: Pid) {
    let status = waitpid(child, None).expect("its end");
    assert_eq!(status, WaitStatus::Exited(child, 0), "a forked child failed");
}

fn open(arguments: &[String]) -> Region {
    Region::open(&arguments[0]).expect("the region")
}

fn run(role: &str, place: &Place) -> String {
    let mut actor = Actor::start(role, &[&place.path()]);
    let answer = actor.answer();
    assert!(actor.end().success(), "{role} failed");
    answer
}

fn totals(place: &Place) -> (u64, u64) {
    let mut inspector = Inspector::open(place.path()).expect("an inspector");
    let totals = inspector.totals();
    (totals.get("prompt"), totals.get("single"))
}

/// Two threads add in a tight loop and one drains while children are forked that add and end.
fn forker(arguments: &[String]) {
    let region = open(arguments);
    let server = region.claim(0).expect("a slot");
    let counter = server.counter("prompt").expect("a counter");
    let stop = AtomicBool::new(false);
    let added: u64 = std::thread::scope(|scope| {
        let add = || {
            let mut added = 0;
            while !stop.load(Ordering::Relaxed) {
                counter.inc();
                added += 1;
            }
            added
        };
        let threads = [scope.spawn(add), scope.spawn(add)];
        let drainer = scope.spawn(|| {
            let mut primary = region.primary().expect("the primary lease");
            let mut sum = 0;
            while !stop.load(Ordering::Relaxed) {
                sum += primary.drain().delta("prompt");
            }
            sum
        });
        for _ in 0..FORKS {
            wait_for(child(|| (0..100).for_each(|_| counter.inc())));
        }
        stop.store(true, Ordering::Relaxed);
        drainer.join().expect("the primary");
        threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
    });
    say(added);
}

fn children_that_add_and_exit() {
    let place = Place::new(1);
    let added: u64 = run("forker", &place).parse().expect("a number");
    assert_eq!(totals(&place).0, added + FORKS * 100, "what parent and children added");
    println!("{FORKS} children forked beside {added} adds by threads: totals exact, none hung");
}

/// One thread claims and gives back all the time while another forks children that live on: none
/// of them may keep a slot that its parent gave back, or that its parent holds when it is killed.
fn forking_claimer(arguments: &[String]) {
    let region = open(arguments);
    let (stop, claims) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut children = Vec::new();
    let mut dice = Dice::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop(region.claim(0).expect("a slot that only this process wants"));
                claims.fetch_add(1, Ordering::Relaxed);
            }
        });
        for _ in 0..FORKS {
            let before = claims.load(Ordering::Relaxed);
            until("a claim", || claims.load(Ordering::Relaxed) > before);
            dice.pause(Duration::from_micros(100));
            children.push(child(|| {
                loop {
                    nix::unistd::pause();
                }
            }));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let _server = region.claim(0).expect("no child holds it");
    say(claims.into_inner());
    // The test kills this process here, and its children live on.
    let pids: Vec<String> = children.iter().map(|pid| pid.to_string()).collect();
    say(pids.join(" "));
    loop {
        nix::unistd::pause();
    }
}

fn children_of_a_process_that_claims() {
    let place = Place::new(1);
    let mut parent = Actor::start("forking_claimer", &[&place.path()]);
    let claims: u64 = parent.answer().parse().expect("a number");
    let children = parent.answer();
    parent.kill();
    let children = children.split(' ').map(|pid| Pid::from_raw(pid.parse().expect("a pid")));
    let children: Vec<Pid> = children.collect();
    let alive = |pid: &Pid| nix::sys::signal::kill(*pid, None).is_ok();
    assert!(children.iter().all(alive), "the children live on");
    let claimed = place.region.claim(0);
    for pid in &children {
        let _ = nix::sys::signal::kill(*pid, Signal::SIGKILL);
    }
    drop(claimed.expect("the slot of a parent that was reaped"));
    println!("{FORKS} children forked beside {claims} claims: no lease stayed with a child");
}

/// A child adds to a single-writer counter, sets, publishes, beats, drains, resets and logs with
/// what it inherited.
fn forbidden(arguments: &[String]) {
    let region = open(arguments);
    let server = region.claim(0).expect("a slot");
    let mut single = server.single_writer("single").expect("a counter");
    let gauge = server.gauge::<i64>("in_flight").expect("a gauge");
    let mut load = server.snapshot("load", &[]).expect("a snapshot");
    let running = load.field::<u64>("load_running").expect("a field");
    let logger = StatLogger::builder(&server).interval(Duration::from_secs(3600));
    let logger = logger.spawn().expect("a thread that logs");
    let private = shmstats::Server::private(region.schema());
    let mut primary = private.region().primary().expect("the primary lease");
    private.counter("prompt").expect("a counter").add(5);
    single.add(7);
    gauge.set(3);
    load.set(running, 4);
    load.publish();
    let in_flight = gauge.in_flight();
    let mut kept = Some((server, single, gauge, load, logger, in_flight));
    wait_for(child(|| {
        let (server, mut single, gauge, mut load, logger, in_flight) = kept.take().expect("all");
        single.add(1000);
        gauge.set(1000);
        gauge.add(1000);
        load.set(running, 1000);
        load.publish();
        server.heartbeat();
        assert!(!server.is_mine());
        assert!(primary.drain().is_idle(), "the parent is the primary");
        primary.reset();
        // All of it is dropped as well; the logger's thread does not exist here.
        drop((server, single, gauge, load, logger, in_flight));
    }));
    assert_eq!(primary.drain().delta("prompt"), 5, "left for the parent");
    assert_eq!(private.region().inspector().expect("one").observe().expect("one").reset_number, 0);
    let (server, mut single, _gauge, _load, _logger, in_flight) = kept.take().expect("all");
    drop(in_flight);
    single.add(1);
    let mut inspector = region.inspector().expect("an inspector");
    let observation = inspector.observe().expect("an observation");
    assert_eq!(observation.states[0], SlotState::Alive);
    assert_eq!(observation.gauge("in_flight"), Some(3.0));
    assert_eq!(observation.gauge("load_running"), Some(4.0));
    assert!(server.is_mine());
    // The child's add, set, add and publish, and its end of what is in flight.
    say(observation.skipped_writes);
}

fn what_a_child_may_not_do() {
    let place = Place::new(1);
    assert_eq!(run("forbidden", &place), "5", "writes that were skipped are counted");
    assert_eq!(totals(&place), (0, 8));
}

/// Ends, by a signal or in order, while its child lives and goes on adding.
fn parent_that_ends(arguments: &[String]) {
    let region = open(arguments);
    let server = region.claim(0).expect("a slot");
    let primary = region.primary().expect("the primary lease");
    let counter = server.counter("prompt").expect("a counter");
    counter.add(1);
    let child = child(|| {
        counter.add(10);
        loop {
            nix::unistd::pause();
        }
    });
    say(child);
    while crate::actor::heard().is_some() {}
    drop((server, counter, primary));
}

fn a_lease_ends_with_its_process() {
    for by_signal in [true, false] {
        let place = Place::new(1);
        let mut parent = Actor::start("parent_that_ends", &[&place.path()]);
        let child = Pid::from_raw(parent.answer().parse().expect("a pid"));
        until("the child's adds", || totals(&place).0 == 11);
        assert!(matches!(place.region.claim(0), Err(Error::Held { .. })), "the parent lives");
        match by_signal {
            true => parent.kill(),
            false => assert!(parent.end().success()),
        }
        let lives = nix::sys::signal::kill(child, None);
        let (claimed, primary) = (place.region.claim(0), place.region.primary());
        nix::sys::signal::kill(child, Signal::SIGKILL).expect("the child, alive");
        lives.expect("the child lives on");
        claimed.expect("the slot of a parent that is gone");
        primary.expect("the primary lease of a parent that is gone");
    }
}

/// The child claims a slot and the primary lease while the parent has its own; then the grandchild.
fn own_slot(arguments: &[String]) {
    let region = open(arguments);
    let server = region.claim(0).expect("a slot");
    let counter = server.counter("prompt").expect("a counter");
    wait_for(child(|| {
        let refused = region.claim(0).expect_err("the parent's slot");
        assert!(matches!(refused, Error::Held { by_this_process: false, .. }), "{refused}");
        let own = region.claim(1).expect("a slot of its own");
        let mut primary = region.primary().expect("the primary lease");
        let mut single = own.single_writer("single").expect("a counter");
        single.add(20);
        own.gauge::<i64>("in_flight").expect("a gauge").set(2);
        counter.add(2);
        assert_eq!(primary.drain().delta("single"), 20);
        assert!(region.primary().is_err() && region.claim(1).is_err(), "held by itself");
        wait_for(child(|| {
            single.add(1000);
            let grandchild = region.claim_any().expect("a slot for the grandchild");
            grandchild.counter("prompt").expect("a counter").add(3);
        }));
        single.add(1);
    }));
    let mut inspector = region.inspector().expect("an inspector");
    assert_eq!(inspector.observe().expect("one").states[0], SlotState::Alive);
    counter.add(1);
    say("ok");
}

fn a_child_has_a_slot_of_its_own() {
    let place = Place::new(2);
    assert_eq!(run("own_slot", &place), "ok");
    assert_eq!(totals(&place), (6, 21));
}

static HANDLED: AtomicU64 = AtomicU64::new(0);
static COUNTER: std::sync::OnceLock<Counter> = std::sync::OnceLock::new();

extern "C" fn on_signal(_: nix::libc::c_int) {
    // Atomics only, as is allowed in a signal handler; the cell is set before the handler is.
    if let Some(counter) = COUNTER.get() {
        counter.inc();
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
}

/// A timer's signal adds to the counter that its thread is adding to.
fn signalled(arguments: &[String]) {
    let region = open(arguments);
    let server = region.claim(0).expect("a slot");
    let counter = COUNTER.get_or_init(|| server.counter("prompt").expect("a counter"));
    let action =
        SigAction::new(SigHandler::Handler(on_signal), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does only what is allowed in one.
    unsafe { sigaction(Signal::SIGUSR1, &action) }.expect("a handler");
    let me = nix::sys::pthread::pthread_self();
    let stop = AtomicBool::new(false);
    let added = std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5_000 {
                nix::sys::pthread::pthread_kill(me, Signal::SIGUSR1).expect("a signal");
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
        let mut added = 0u64;
        while !stop.load(Ordering::Relaxed) {
            counter.inc();
            added += 1;
        }
        added
    });
    say(added + HANDLED.load(Ordering::Relaxed));
}

fn a_signal_handler_adds() {
    let place = Place::new(1);
    let added: u64 = run("signalled", &place).parse().expect("a number");
    assert_eq!(totals(&place).0, added);
}

/// Each kind of handle keeps the slot: no next owner until the last of them is gone.
fn handles_outlive_their_server() {
    let place = Place::new(1);
    let server = place.region.claim(0).expect("a slot");
    let mut handles: Vec<Box<dyn std::any::Any>> = vec![
        Box::new(server.counter("prompt").expect("a counter")),
        Box::new(server.single_writer("single").expect("a counter")),
        Box::new(server.gauge::<i64>("in_flight").expect("a gauge")),
        Box::new(server.gauge::<i64>("in_flight").expect("a gauge").in_flight()),
        Box::new(server.snapshot("load", &[]).expect("a snapshot")),
        Box::new(server.clone()),
    ];
    drop(server);
    let mut other = Worker::start(Path::new(&place.path()));
    while let Some(handle) = handles.pop() {
        let refused = other.ask("claim 0");
        assert!(refused.contains("held by another process"), "{refused}");
        drop(handle);
    }
    other.ok("claim 0");
}

/// Starts a server and forks; the child drops its copy of all that a launcher has.
fn launcher_that_forks(arguments: &[String]) {
    let region = open(arguments);
    let builder = ProcessManager::builder(1, |_| {
        let mut command = Command::new("sleep");
        command.arg("3600");
        command
    });
    let mut all = Some((region, builder.spawn().expect("a server")));
    wait_for(child(|| drop(all.take())));
    let (region, mut servers) = all.take().expect("all");
    let ended = servers.wait(Duration::from_millis(200));
    assert!(ended.is_empty() && servers.is_running(), "a forked child stopped {ended:?}");
    assert_eq!(servers.stop().len(), 1);
    drop(region);
    say("ok");
}

fn a_launcher_forks() {
    let place = Place::new(1);
    assert_eq!(run("launcher_that_forks", &place), "ok");
    assert!(place.path().exists());
}

/// Closes all descriptors, as some do who become a daemon, and opens others under their numbers:
/// those are not closed in the place of what was there.
fn daemon(arguments: &[String]) {
    // Never dropped: their own descriptors would be closed twice, by the rules of Rust.
    let region = std::mem::ManuallyDrop::new(open(arguments));
    let mut server = Some(region.claim(0).expect("a slot"));
    let counter = server.as_ref().expect("it").counter("prompt").expect("a counter");
    counter.add(1);
    // SAFETY: standard input, output and error stay; what else this process has, it does not use
    // any more, but for the leases, which is what is tried here.
    assert_eq!(unsafe { nix::libc::close_range(3, u32::MAX, 0) }, 0);
    let others: Vec<_> =
        (0..16).map(|_| std::fs::File::open("/dev/null").expect("a descriptor")).collect();
    let all_open = || others.iter().all(|file| file.metadata().is_ok());
    wait_for(child(|| assert!(all_open(), "closed in a forked child")));
    counter.add(1);
    drop((server.take(), counter));
    assert!(all_open(), "closed with the lease");
    say("ok");
}

fn a_daemon_closes_everything() {
    let place = Place::new(1);
    assert_eq!(run("daemon", &place), "ok");
    assert_eq!(totals(&place).0, 2);
}
