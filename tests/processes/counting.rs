//! Counts are exact, whoever drains, dies or comes late.

use shmstats::Inspector;

use crate::support::{Place, until};
use crate::worker::Worker;

tests![
    totals_are_exact_under_four_writers,
    a_late_server_and_one_that_leaves,
    a_killed_server_loses_nothing_it_counted,
    takeover_when_the_primary_is_killed,
    single_writer_totals_survive_the_primary,
];

fn pair(answer: &str) -> (u64, u64) {
    let mut numbers = answer.split_whitespace().map(|n| n.parse().expect("a number"));
    (numbers.next().expect("two numbers"), numbers.next().expect("two numbers"))
}

/// Sums of intervals and what is left equal what was added, per counter and of both kinds, while
/// an inspector never sees a total step back.
fn totals_are_exact_under_four_writers() {
    let place = Place::new(4);
    let mut workers: Vec<_> = (0..4).map(|i| Worker::with_slot(&place.path(), i)).collect();
    workers.iter_mut().for_each(|w| w.ok("spin"));
    let mut primary = place.primary();
    let mut interval = primary.interval();
    let mut inspector = Inspector::open(place.path()).expect("an inspector");
    let (mut prompt, mut single, mut drains) = (0, 0, 0);
    let mut last = (0, 0);
    // Enough for every worker to have been scheduled and drained many times.
    while drains < 20_000 || prompt < 1_000_000 || single < 1_000_000 {
        primary.drain_into(&mut interval);
        prompt += interval.delta("prompt");
        single += interval.delta("single");
        drains += 1;
        let totals = inspector.totals();
        let now = (totals.get("prompt"), totals.get("single"));
        assert!(totals.all_settled(), "no drain is under way");
        assert!(now.0 >= last.0 && now.1 >= last.1, "{last:?} stepped back to {now:?}");
        assert!(now.0 >= prompt && now.1 >= single, "{now:?} is less than was drained");
        last = now;
    }
    let added = workers.iter_mut().map(|w| pair(&w.ask("stop")));
    let added = added.fold((0, 0), |sum, (p, s)| (sum.0 + p, sum.1 + s));
    let totals = inspector.totals();
    assert_eq!((totals.get("prompt"), totals.get("single")), added);
    primary.drain_into(&mut interval);
    let drained = (prompt + interval.delta("prompt"), single + interval.delta("single"));
    assert_eq!(drained, added);
    assert_eq!(inspector.totals().get("prompt"), added.0);
}

fn a_late_server_and_one_that_leaves() {
    let place = Place::new(2);
    let mut primary = place.primary();
    let mut first = Worker::with_slot(&place.path(), 0);
    first.ok("record 1 10 0 7");
    assert_eq!(primary.drain().delta("prompt"), 10);
    let mut late = Worker::with_slot(&place.path(), 1);
    late.ok("record 1 5 0 2");
    first.ok("record 1 1 0 7");
    assert!(first.exit().success());
    primary.probe().expect("the kernel's answer");
    let interval = primary.drain();
    assert_eq!(interval.delta("prompt"), 6, "counted before it left");
    assert_eq!(interval.gauge("load_running"), Some(2.0), "only who lives");
    let states = interval.states();
    assert_eq!(states[0], shmstats::SlotState::Released);
    assert_eq!(states[1], shmstats::SlotState::Alive);
}

fn a_killed_server_loses_nothing_it_counted() {
    let place = Place::new(1);
    let mut worker = Worker::with_slot(&place.path(), 0);
    worker.ok("record 1000 3 1 9");
    worker.ok("single 77");
    worker.kill();
    let mut primary = place.primary();
    let interval = primary.drain();
    assert_eq!(interval.states()[0], shmstats::SlotState::Dead);
    let counted =
        (interval.delta("prompt"), interval.delta("generation"), interval.delta("single"));
    assert_eq!(counted, (3000, 1000, 77));
    assert_eq!(interval.gauge("load_running"), None);
    let mut next = Worker::with_slot(&place.path(), 0);
    next.ok("record 1 1 1 1");
    next.ok("single 1");
    primary.probe().expect("the kernel's answer");
    let interval = primary.drain();
    assert_eq!((interval.delta("prompt"), interval.delta("single")), (1, 1));
    let mut inspector = place.region.inspector().expect("an inspector");
    let totals = inspector.totals();
    assert_eq!((totals.get("prompt"), totals.get("single")), (3001, 78));
}

fn takeover_when_the_primary_is_killed() {
    let place = Place::new(2);
    let mut writer = Worker::with_slot(&place.path(), 0);
    writer.ok("spin");
    let mut inspector = Inspector::open(place.path()).expect("an inspector");
    let mut last = 0;
    for _ in 0..20 {
        let mut old = Worker::start(&place.path());
        old.ok("primary");
        old.ok("drain_until_killed");
        let before = last;
        until("the old primary to drain", || {
            let now = inspector.totals().get("prompt");
            assert!(now >= last, "{last} stepped back to {now}");
            last = now;
            now > before
        });
        old.kill();
        let mut standby = place.primary();
        let now = inspector.totals().get("prompt");
        assert!(now >= last, "{last} stepped back to {now} at a takeover");
        let _ = standby.drain();
        let after = inspector.totals().get("prompt");
        assert!(after >= now, "{now} stepped back to {after} after a takeover");
        last = after;
    }
    let added = pair(&writer.ask("stop"));
    let observation = inspector.observe().expect("an observation");
    let totals = inspector.totals();
    assert_eq!(totals.get("single"), added.1, "single-writer counters lose nothing");
    let lost = added.0 - totals.get("prompt");
    assert!(
        lost == 0 || observation.interrupted_drains > 0,
        "{lost} lost, but no drain was interrupted"
    );
}

/// Counted and drained by a primary that dies before it logs: in the totals all the same.
fn single_writer_totals_survive_the_primary() {
    let place = Place::new(1);
    let mut worker = Worker::with_slot(&place.path(), 0);
    worker.ok("single 5");
    worker.ok("record 1 8 0 0");
    let mut primary = Worker::start(&place.path());
    primary.ok("primary");
    assert_eq!(primary.ask("drain"), "8 5");
    primary.kill();
    let interval = place.primary().drain();
    assert!(interval.is_idle(), "drained once already");
    let mut inspector = place.region.inspector().expect("an inspector");
    let totals = inspector.totals();
    assert_eq!((totals.get("prompt"), totals.get("single")), (8, 5));
    assert_eq!(inspector.observe().expect("an observation").interrupted_drains, 0);
}
