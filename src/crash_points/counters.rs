//! Deaths in the middle of a drain, of taking over from one who died in a drain, and of a reset.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Place, die_at, dies_at, steps_of};
use crate::{Inspector, Server};

const COUNTERS: [&str; 3] = ["first", "second", "single"];

/// What has been added in all, per counter.
type Added = [u64; 3];

/// Two servers, so that there is more than one slot to drain.
fn servers(place: &Place) -> [Server; 2] {
    [0, 1].map(|slot| place.region.claim(slot).expect("a slot"))
}

/// Steps of a drain of two slots with two drained counters each.
const DRAIN_STEPS: usize = 2 + 1 + 2 * 2 * 3;

fn add(servers: &[Server; 2], added: &mut Added, n: u64) {
    for server in servers {
        server.counter("first").expect("a counter").add(n);
        server.counter("second").expect("a counter").add(2 * n);
        server.single_writer("single").expect("a counter").add(3 * n);
    }
    for (sum, times) in added.iter_mut().zip([1, 2, 3]) {
        *sum += 2 * times * n;
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
    let servers = servers(&place);
    let (mut inspector, mut added) = (place.inspector(), [0; 3]);
    add(&servers, &mut added, 10);
    let steps = steps_of("drain", &place.path());
    assert_eq!(steps.len(), DRAIN_STEPS, "{steps:?}");
    let mut interrupted = 0;
    for (n, step) in steps.iter().enumerate() {
        add(&servers, &mut added, 10);
        die_at("drain", &place.path(), n);
        assert_eq!(totals(&mut inspector), added, "{step}, before the next primary");
        let mut primary = place.region.primary().expect("the dead one's lease");
        assert_eq!(totals(&mut inspector), added, "{step}, after the takeover");
        add(&servers, &mut added, 7);
        let interval = primary.drain();
        assert_eq!(totals(&mut inspector), added, "{step}, after the next drain");
        assert!(interval.delta("first") >= 14, "{step}");
        assert!(primary.drain().is_idle(), "{step}: everything is drained once");
        // Only who wrote the first odd sequence interrupted anything.
        interrupted += u64::from(n > 0);
        let observation = inspector.observe().expect("an observation");
        assert_eq!(observation.interrupted_drains, interrupted, "{step}");
    }
}

/// The next primary may die as well, while it settles what the one before it left.
#[test]
fn a_takeover_with_idle_writers() {
    for drain_step in 0..DRAIN_STEPS {
        let place = Place::new();
        let servers = servers(&place);
        let (mut inspector, mut added) = (place.inspector(), [0; 3]);
        add(&servers, &mut added, 10);
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
    let servers = servers(&place);
    let (mut inspector, mut added) = (place.inspector(), [0; 3]);
    add(&servers, &mut added, 10);
    let steps = steps_of("drain", &place.path());
    let mut lost = [0; 3];
    for (n, step) in steps.iter().enumerate() {
        add(&servers, &mut added, 10);
        let before = totals(&mut inspector);
        let more = while_counting(&servers[0], || die_at("drain", &place.path(), n));
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

/// Two deaths, one in a drain and one in the takeover from it, beside a server that adds: still no
/// more than one cell's one delta is missing.
#[test]
fn a_takeover_with_busy_writers() {
    let place = Place::new();
    let servers = servers(&place);
    let (mut inspector, mut added, mut last) = (place.inspector(), [0; 3], [0; 3]);
    let (mut lost, mut deaths) = ([0; 3], 0);
    for drain_step in 1..DRAIN_STEPS {
        for n in 0.. {
            add(&servers, &mut added, 10);
            let mut died = false;
            let more = while_counting(&servers[0], || {
                die_at("drain", &place.path(), drain_step);
                died = dies_at("takeover", &place.path(), n);
            });
            (0..3).for_each(|i| added[i] += more[i]);
            let before = totals(&mut inspector);
            let mut primary = place.region.primary().expect("the lease of two dead ones");
            let settled = totals(&mut inspector);
            let what = format!("drain step {drain_step}, takeover step {n}");
            for i in 0..3 {
                assert!(last[i] <= before[i] && before[i] <= settled[i], "{what}: stepped back");
            }
            let missing: Vec<u64> = (0..3).map(|i| added[i] - lost[i] - settled[i]).collect();
            assert!(missing.iter().filter(|n| **n > 0).count() <= 1, "{what}: {missing:?}");
            (0..3).for_each(|i| lost[i] += missing[i]);
            assert_eq!(lost[2], 0, "{what}: single-writer counters lose nothing");
            let _ = primary.drain();
            last = totals(&mut inspector);
            assert_eq!(last, settled, "{what}, after the next drain");
            deaths += u64::from(died);
            if !died {
                break;
            }
        }
    }
    // At least the marks of both slots, for each step of the drain that left one odd.
    assert!(deaths >= DRAIN_STEPS as u64, "{deaths} deaths in a takeover");
}

/// Totals are exact at each step of a reset, and the next primary can do it.
#[test]
fn a_reset() {
    let place = Place::new();
    let servers = servers(&place);
    let (mut inspector, mut added) = (place.inspector(), [0; 3]);
    let gauge = servers[0].gauge::<i64>("own").expect("a gauge");
    add(&servers, &mut added, 10);
    let steps = steps_of("reset", &place.path());
    assert!(steps.iter().any(|step| step == "reset: after number"), "{steps:?}");
    for (n, step) in steps.iter().enumerate() {
        add(&servers, &mut added, 10);
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
