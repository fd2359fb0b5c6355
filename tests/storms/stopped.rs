//! A server that is stopped for longer than anything waits keeps its slot.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use shmstats::{Error, SlotState};

use crate::support::{Place, until};
use crate::worker::Worker;

tests![a_stopped_server_keeps_its_slot, a_stopped_primary_is_not_replaced];

fn pid(worker: &Worker) -> Pid {
    Pid::from_raw(worker.pid() as i32)
}

/// Stops it, and waits until it has stopped.
fn stop(worker: &Worker) {
    kill(pid(worker), Signal::SIGSTOP).expect("a child");
    waitid(Id::Pid(pid(worker)), WaitPidFlag::WSTOPPED).expect("its state");
}

fn go_on(worker: &Worker) {
    kill(pid(worker), Signal::SIGCONT).expect("a child");
}

fn a_stopped_server_keeps_its_slot() {
    let place = Place::new(1);
    let mut worker = Worker::with_slot(&place.path(), 0);
    worker.ok("record 1 5 0 3");
    worker.ok("spin");
    let mut inspector = place.region.inspector().expect("an inspector");
    until("it to count", || inspector.totals().get("single") > 1000);
    stop(&worker);
    let start = Instant::now();
    // Each of them waits for as long as a claim ever does.
    for _ in 0..3 {
        let refused = place.region.claim(0).expect_err("a slot of one who lives");
        assert!(matches!(refused, Error::Held { by_this_process: false, .. }), "{refused}");
    }
    assert!(start.elapsed() >= Duration::from_secs(1), "longer than anything waits");
    let observation = inspector.observe().expect("an observation");
    assert_eq!(observation.states[0], SlotState::Alive);
    assert!(observation.owners[0].is_stopped());
    assert_eq!(observation.gauge("load_running"), Some(3.0), "its gauges stay");
    place.region.clone().remove().expect_err("a region of one who lives");
    let mut primary = place.primary();
    let before = primary.drain().delta("prompt");
    assert!(primary.drain().is_idle(), "it is stopped");
    go_on(&worker);
    until("it to go on", || inspector.totals().get("prompt") > before);
    let added = worker.ask("stop");
    let added: Vec<u64> = added.split(' ').map(|n| n.parse().expect("a number")).collect();
    let totals = inspector.totals();
    assert_eq!((totals.get("prompt"), totals.get("single")), (added[0] + 5, added[1]));
    worker.ok("load load 8");
    assert_eq!(inspector.observe().expect("one").gauge("load_running"), Some(8.0));
}

/// A primary that is stopped in the middle of a drain: totals are the last sure ones and never
/// step back; counting goes on; once it goes on, so does everything.
fn a_stopped_primary_is_not_replaced() {
    let place = Place::new(1);
    let mut writer = Worker::with_slot(&place.path(), 0);
    writer.ok("spin");
    let mut primary = Worker::start(&place.path());
    primary.ok("primary");
    primary.ok("drain_until_killed");
    let mut inspector = place.region.inspector().expect("an inspector");
    let (mut last, mut unsure) = (0, 0);
    for _ in 0..50 {
        stop(&primary);
        assert!(matches!(place.region.primary(), Err(Error::Held { .. })));
        for _ in 0..5 {
            let totals = inspector.totals();
            assert!(totals.get("prompt") >= last, "stepped back");
            last = totals.get("prompt");
            unsure += u32::from(!totals.all_settled());
        }
        go_on(&primary);
        until("totals to go on", || {
            let totals = inspector.totals();
            assert!(totals.get("prompt") >= last, "stepped back");
            let more = totals.all_settled() && totals.get("prompt") > last;
            last = totals.get("prompt");
            more
        });
    }
    println!("a primary stopped 50 times: {unsure} of 250 readings were not sure");
    primary.kill();
    drop(place.primary());
}
