//! Snapshots of scope Shared: the newest observation of a thing wins, whoever made it.

use shmstats::Primary;

use crate::support::Place;
use crate::worker::Worker;

tests![
    the_newest_observation_wins,
    an_observation_outlives_its_observer,
    a_slot_that_changes_hands_keeps_its_observation,
    two_engines_with_changing_observers,
];

fn running(primary: &mut Primary) -> Option<f64> {
    primary.probe().expect("the kernel's answer");
    primary.drain().gauge("running")
}

fn the_newest_observation_wins() {
    let place = Place::new(2);
    let mut primary = place.primary();
    let mut a = Worker::with_slot(&place.path(), 0);
    let mut b = Worker::with_slot(&place.path(), 1);
    assert_eq!(running(&mut primary), None, "never published is absent");
    a.ok("engine 0 3");
    assert_eq!(running(&mut primary), Some(3.0));
    b.ok("engine 0 0");
    assert_eq!(running(&mut primary), Some(0.0), "not 3, and not a sum");
    a.ok("engine 0 2");
    assert_eq!(running(&mut primary), Some(2.0));
}

fn an_observation_outlives_its_observer() {
    let place = Place::new(2);
    let mut primary = place.primary();
    let mut a = Worker::with_slot(&place.path(), 0);
    let mut b = Worker::with_slot(&place.path(), 1);
    a.ok("engine 0 3");
    b.ok("engine 0 0");
    b.kill();
    assert_eq!(running(&mut primary), Some(0.0), "clearing it would bring 3 back");
    a.kill();
    assert_eq!(running(&mut primary), Some(0.0));
}

fn a_slot_that_changes_hands_keeps_its_observation() {
    let place = Place::new(2);
    let mut primary = place.primary();
    let mut a = Worker::with_slot(&place.path(), 0);
    let mut b = Worker::with_slot(&place.path(), 1);
    a.ok("engine 0 3");
    b.ok("engine 0 0");
    b.kill();
    let mut b = Worker::with_slot(&place.path(), 1);
    assert_eq!(running(&mut primary), Some(0.0), "B's successor has seen nothing yet");
    a.kill();
    let mut a = Worker::with_slot(&place.path(), 0);
    assert_eq!(running(&mut primary), Some(0.0), "A's successor neither");
    b.ok("engine 0 4");
    assert_eq!(running(&mut primary), Some(4.0));
    a.ok("engine 0 5");
    assert_eq!(running(&mut primary), Some(5.0));
}

fn two_engines_with_changing_observers() {
    let place = Place::new(2);
    let mut primary = place.primary();
    let mut workers = [0, 1].map(|i| Worker::with_slot(&place.path(), i));
    for step in 0..20_usize {
        let (mine, yours) = (step % 2, (step / 2) % 2);
        workers[mine].ok(&format!("engine 0 {step}"));
        workers[yours].ok(&format!("engine 1 {}", 100 * step));
        assert_eq!(running(&mut primary), Some(101.0 * step as f64), "summed over engines");
        let interval = primary.peek();
        for (engine, value) in [("0", step), ("1", 100 * step)] {
            let id = interval.schema().find("running", &[("engine", engine)]).expect("a record");
            assert_eq!(interval.gauge_of(id), Some(value as f64), "engine {engine}");
            assert!(interval.age_of(id).expect("an age") < crate::support::LIMIT);
        }
        assert_eq!(interval.gauge("kv"), Some(0.5), "the mean over engines");
    }
}
