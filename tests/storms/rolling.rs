//! A whole group replaced while it serves: old and new processes overlap, then the old ones go.

use std::sync::atomic::{AtomicBool, Ordering};

use shmstats::{Inspector, Region};

use crate::actor::{Actor, Role, heard, say};
use crate::dice::times;
use crate::kills::SetOnDrop;
use crate::support::{Place, publish_load, until};

tests![old_and_new_overlap];

pub(crate) const ROLES: &[Role] = &[("member", member)];

const SERVERS: u32 = 4;

/// Region, index: claims its slot or any other, and counts until its input ends. What it added.
fn member(arguments: &[String]) {
    let index = arguments[1].parse().expect("an index");
    let region = Region::open(&arguments[0]).expect("the region");
    let server = region.claim_preferring(index).expect("a slot");
    assert_eq!(server.index(), Some(index));
    let stop = AtomicBool::new(false);
    let counter = server.counter("prompt").expect("a counter");
    let mut single = server.single_writer("single").expect("a counter");
    publish_load(&server, "load", 10, 0, None);
    let added = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut added = 0u64;
            while !stop.load(Ordering::Relaxed) {
                counter.inc();
                single.inc();
                added += 1;
            }
            added
        });
        say("ok");
        while heard().is_some() {}
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("the writer")
    });
    say(added);
}

fn start_group(place: &Place) -> Vec<Actor> {
    let mut group: Vec<_> = (0..SERVERS)
        .map(|index| Actor::start("member", &[&place.path(), &index.to_string()]))
        .collect();
    group.iter_mut().for_each(|member| assert_eq!(member.answer(), "ok"));
    group
}

fn old_and_new_overlap() {
    let place = Place::new(SERVERS);
    assert_eq!(place.region.slot_count(), 2 * SERVERS);
    let stop = AtomicBool::new(false);
    let mut observer = Inspector::open(place.path()).expect("an inspector");
    let mut running = || observer.observe().expect("an observation").gauge("load_running");
    let whole = f64::from(10 * SERVERS);
    let rounds = times(10);
    let readings = std::thread::scope(|scope| {
        let guard = SetOnDrop(&stop);
        let mut onlooker = Inspector::open(place.path()).expect("an inspector");
        let mut primary = place.primary();
        let stop = &stop;
        let watcher = scope.spawn(move || {
            let (mut last, mut drained, mut readings) = ((0, 0), 0, 0u64);
            while !stop.load(Ordering::Acquire) {
                drained += primary.drain().delta("prompt");
                let totals = onlooker.totals();
                let now = (totals.get("prompt"), totals.get("single"));
                assert!(now.0 >= last.0 && now.1 >= last.1, "{last:?} stepped back to {now:?}");
                assert!(now.0 >= drained);
                (last, readings) = (now, readings + 1);
                std::thread::yield_now();
            }
            readings
        });
        let mut old = start_group(&place);
        assert_eq!(running(), Some(whole));
        for round in 0..rounds {
            let new = start_group(&place);
            assert_eq!(running(), Some(2.0 * whole), "old and new");
            for member in old {
                match round % 2 {
                    0 => member.kill(),
                    _ => assert!(member.end().success()),
                }
            }
            // Reaped: nothing of the old ones is left.
            until("the new ones alone", || running() == Some(whole));
            old = new;
        }
        old.into_iter().for_each(|member| assert!(member.end().success()));
        assert_eq!(running(), None);
        drop(guard);
        watcher.join().expect("the onlooker")
    });
    println!(
        "{rounds} rolling restarts of {SERVERS} servers, {readings} readings, none stepped back"
    );
}
