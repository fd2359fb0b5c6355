//! Deaths in the middle of a drain, of taking over from one who died in a drain, and of a reset.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Place, die_at, steps_of};
use crate::{Inspector, Server};

const COUNTERS: [&str; 3] = ["first", "second", "single"];

/// What one server has added in all, per counter.
type Added = [u64; 3];

fn add(server: &Server, added: &mut Added, n: u64) {
    server.counter("first").expect("a counter").add(n);
    server.counter("second").expect("a counter").add(2 * n);
    server.single_writer("single").expect("a counter").add(3 * n);
    for (sum, times) in added.iter_mut().zip([1, 2, 3]) {
        *sum += times * n;
    }
}

fn totals(inspector: &mut Inspector) -> Added {
    let totals = inspector.totals();
    assert!(totals.all_settled(), "no primary is alive");
    COUNTERS.map(|name| totals.get(name))
}

/// With nobody adding at the time, a death at any step loses nothing at all: neither before the
/// next primary comes, nor after.
#[test]
fn a_drain_with_idle_writers() {
    let place = Place::new();
    let server = place.region.claim(0).expect("a slot");
    let (mut inspector, mut added) = (place.inspector(), [0; 3]);
    add(&server, &mut added, 10);
    let steps = steps_of("drain", &place.path());
    assert_eq!(steps.len(), 2 + 3 * 2, "{steps:?}");
    let mut interrupted = 0;
    for (n, step) in steps.iter().enumerate() {
        add(&server, &mut added, 10);
        die_at("drain", &place.path(), n);
        assert_eq!(totals(&mut inspector), added, "{step}, before the next primary");
        let mut primary = place.region.primary().expect("the dead one's lease");
        assert_eq!(totals(&mut inspector), added, "{step}, after the takeover");
        add(&server, &mut added, 7);
        let interval = primary.drain();
        assert_eq!(totals(&mut inspector), added, "{step}, after the next drain");
        assert!(interval.delta("first") >= 7, "{step}");
        assert!(primary.drain().is_idle(), "{step}: everything is drained once");
        // Only who wrote the odd sequence interrupted anything.
        interrupted += u64::from(step != "drain: before sequence");
        let observation = inspector.observe().expect("an observation");
        assert_eq!(observation.interrupted_drains, interrupted, "{step}");
    }
}

/// The next primary may die as well, while it settles what the one before it left.
#[test]
fn a_takeover_with_idle_writers() {
    for drain_step in 0..2 + 3 * 2 {
        let place = Place::new();
        let server = place.region.claim(0).expect("a slot");
        let (mut inspector, mut added) = (place.inspector(), [0; 3]);
        add(&server, &mut added, 10);
        die_at("drain", &place.path(), drain_step);
        for n in 0.. {
            // The same state again for each step: what a takeover changes is settled for good.
            let trial = Place::new();
            drop(trial.region);
            std::fs::copy(place.path(), trial.folder.path().join("crash.shmstats"))
                .expect("a copy");
            let path = trial.folder.path().join("crash.shmstats");
            let steps = if drain_step == 0 { Vec::new() } else { steps_of_copy(&path) };
            if n == steps.len() {
                assert!(n > 0 || drain_step == 0, "drain step {drain_step}: nothing to settle");
                break;
            }
            die_at("takeover", &path, n);
            let mut onlooker = Inspector::open(&path).expect("an inspector");
            assert_eq!(totals(&mut onlooker), added, "{drain_step}, then {}", steps[n]);
            let region = crate::Region::open(&path).expect("the region");
            let mut primary = region.primary().expect("the lease of two dead ones");
            assert_eq!(totals(&mut onlooker), added, "{drain_step}, then {}", steps[n]);
            let _ = primary.drain();
            assert_eq!(totals(&mut onlooker), added, "{drain_step}, then {}", steps[n]);
            assert!(primary.drain().is_idle());
        }
        assert_eq!(totals(&mut inspector), added);
    }
}

/// The steps of taking over a region, found on a copy of it.
fn steps_of_copy(path: &std::path::Path) -> Vec<String> {
    let copy = path.with_extension("copy");
    std::fs::copy(path, &copy).expect("a copy");
    let output = super::command("takeover", &copy).output().expect("a child");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().filter_map(|line| line.strip_prefix("step: ")).map(String::from).collect()
}

/// A server that adds at full speed while `action` runs; what it added in all.
fn while_counting(server: &Server, action: impl FnOnce()) -> Added {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (first, second) = (server.counter("first"), server.counter("second"));
            let (first, second) = (first.expect("a counter"), second.expect("a counter"));
            let mut single = server.single_writer("single").expect("a counter");
            let mut added = 0;
            while !stop.load(Ordering::Acquire) {
                first.add(1);
                second.add(1);
                single.add(1);
                added += 1;
            }
            [added; 3]
        });
        action();
        stop.store(true, Ordering::Release);
        writer.join().expect("the writer")
    })
}

/// With a server adding at the same time, a death between a cell's swap and its ledger may lose
/// that cell's one delta, which is counted. A death at any other step loses nothing.
#[test]
fn a_drain_with_busy_writers() {
    let place = Place::new();
    let server = place.region.claim(0).expect("a slot");
    let (mut inspector, mut added) = (place.inspector(), [0; 3]);
    add(&server, &mut added, 10);
    let steps = steps_of("drain", &place.path());
    let mut lost = [0; 3];
    for (n, step) in steps.iter().enumerate() {
        add(&server, &mut added, 10);
        let before = totals(&mut inspector);
        let more = while_counting(&server, || die_at("drain", &place.path(), n));
        for (sum, more) in added.iter_mut().zip(more) {
            *sum += more;
        }
        let after = totals(&mut inspector);
        let mut primary = place.region.primary().expect("the dead one's lease");
        let settled = totals(&mut inspector);
        let stepped_back = |a: Added, b: Added| a.iter().zip(b).any(|(a, b)| *a > b);
        assert!(!stepped_back(before, after) && !stepped_back(after, settled), "{step}");
        let missing: Vec<u64> = (0..3).map(|i| added[i] - lost[i] - settled[i]).collect();
        match step.as_str() {
            "drain: after swap" => {
                let cells = missing.iter().filter(|missing| **missing > 0).count();
                assert!(cells <= 1, "{step}: {missing:?}");
                (0..3).for_each(|i| lost[i] += missing[i]);
            }
            _ => assert_eq!(missing, [0, 0, 0], "{step}"),
        }
        assert_eq!(lost[2], 0, "single-writer counters lose nothing");
        let _ = primary.drain();
        assert_eq!(totals(&mut inspector), settled, "{step}, after the next drain");
        assert!(primary.drain().is_idle());
    }
    let observation = inspector.observe().expect("an observation");
    assert_eq!(observation.interrupted_drains, steps.len() as u64 - 1);
}

/// Totals are exact at each step of a reset, and the next primary can do it.
#[test]
fn a_reset() {
    let place = Place::new();
    let server = place.region.claim(0).expect("a slot");
    let (mut inspector, mut added) = (place.inspector(), [0; 3]);
    let gauge = server.gauge::<i64>("own").expect("a gauge");
    add(&server, &mut added, 10);
    let steps = steps_of("reset", &place.path());
    assert!(steps.iter().any(|step| step == "reset: after number"), "{steps:?}");
    for (n, step) in steps.iter().enumerate() {
        add(&server, &mut added, 10);
        gauge.set(5);
        let number = inspector.observe().expect("an observation").reset_number;
        die_at("reset", &place.path(), n);
        assert_eq!(totals(&mut inspector), added, "{step}");
        let mut primary = place.region.primary().expect("the dead one's lease");
        assert_eq!(totals(&mut inspector), added, "{step}, after the takeover");
        let observation = inspector.observe().expect("an observation");
        let done = step == "reset: after number";
        assert_eq!(observation.reset_number, number + u64::from(done), "{step}");
        assert_eq!(observation.gauge("own"), (!done).then_some(5.0), "{step}");
        primary.reset();
        assert_eq!(totals(&mut inspector), added, "{step}, after another reset");
        assert!(primary.drain().is_idle());
        assert_eq!(inspector.observe().expect("an observation").gauge("own"), None);
    }
}
