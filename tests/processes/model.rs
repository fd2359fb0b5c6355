//! The eight cases of the model that shmstats replaces, with its numbers.

use crate::support::{Place, publish_load, record};
use crate::worker::Worker;

tests![
    three_servers_add_up,
    counters_add_and_gauges_replace,
    reading_resets_once,
    kv_usage_is_the_mean,
    a_silent_server_does_not_count_in_the_mean,
    three_processes,
    reset_of_everything,
    rare_counters_add_up,
];

fn three_servers_add_up() {
    let place = Place::new(3);
    let servers: Vec<_> = (0..3).map(|i| place.region.claim(i).expect("a slot")).collect();
    for (server, (prompt, generation, running)) in
        servers.iter().zip([(100, 200, 5), (150, 250, 3), (50, 100, 2)])
    {
        record(server, prompt, generation, running);
    }
    let interval = place.primary().drain();
    assert_eq!((interval.delta("prompt"), interval.delta("generation")), (300, 550));
    assert_eq!(interval.gauge("load_running"), Some(10.0));
    assert_eq!(interval.gauge("load_waiting"), Some(0.0));
}

fn counters_add_and_gauges_replace() {
    let place = Place::new(1);
    let server = place.region.claim(0).expect("a slot");
    record(&server, 100, 0, 5);
    record(&server, 50, 0, 3);
    let interval = place.primary().drain();
    assert_eq!(interval.delta("prompt"), 150);
    assert_eq!(interval.gauge("load_running"), Some(3.0));
}

fn reading_resets_once() {
    let place = Place::new(2);
    let servers = [0, 1].map(|i| place.region.claim(i).expect("a slot"));
    record(&servers[0], 100, 200, 0);
    record(&servers[1], 150, 250, 0);
    let mut primary = place.primary();
    let peeked = primary.peek();
    assert_eq!((peeked.delta("prompt"), peeked.delta("generation")), (250, 450));
    let first = primary.drain();
    assert_eq!((first.delta("prompt"), first.delta("generation")), (250, 450));
    let second = primary.drain();
    assert_eq!((second.delta("prompt"), second.delta("generation")), (0, 0));
    assert!(second.is_idle());
    let mut inspector = place.region.inspector().expect("an inspector");
    assert_eq!(inspector.totals().get("prompt"), 250, "totals are not reset");
}

fn kv_usage_is_the_mean() {
    let place = Place::new(3);
    let servers: Vec<_> = (0..3).map(|i| place.region.claim(i).expect("a slot")).collect();
    for (server, kv) in servers.iter().zip([0.5, 0.7, 0.6]) {
        publish_load(server, "load", 0, 0, Some(kv));
    }
    let mean = place.primary().drain().gauge("load_kv").expect("a mean");
    assert!((mean - 0.6).abs() < 1e-9, "{mean}");
}

fn a_silent_server_does_not_count_in_the_mean() {
    let place = Place::new(3);
    let servers: Vec<_> = (0..3).map(|i| place.region.claim(i).expect("a slot")).collect();
    publish_load(&servers[0], "load", 0, 0, Some(0.5));
    publish_load(&servers[1], "load", 0, 0, Some(0.7));
    let mut primary = place.primary();
    let mean = primary.drain().gauge("load_kv").expect("a mean");
    assert!((mean - 0.6).abs() < 1e-9, "{mean}");
    // Zero is a value, unlike silence.
    publish_load(&servers[2], "load", 0, 0, Some(0.0));
    let mean = primary.drain().gauge("load_kv").expect("a mean");
    assert!((mean - 0.4).abs() < 1e-9, "{mean}");
}

fn three_processes() {
    let place = Place::new(3);
    let mut workers: Vec<_> = (0..3).map(|i| Worker::with_slot(&place.path(), i)).collect();
    for (index, worker) in workers.iter_mut().enumerate() {
        worker.ok(&format!("record 10 10 20 {}", index + 1));
        worker.ok(&format!("load kept {}", index + 1));
    }
    let mut primary = place.primary();
    let interval = primary.drain();
    assert_eq!((interval.delta("prompt"), interval.delta("generation")), (300, 600));
    assert_eq!(interval.gauge("load_running"), Some(6.0));
    assert_eq!(interval.gauge("kept_running"), Some(6.0));

    let mut workers = workers.into_iter();
    assert!(workers.next().expect("three").exit().success());
    for worker in workers {
        worker.kill();
    }
    primary.probe().expect("the kernel's answer");
    let interval = primary.drain();
    assert_eq!(interval.gauge("load_running").unwrap_or(0.0), 0.0, "gone with their owners");
    assert_eq!(interval.gauge("kept_running"), Some(6.0), "stays with the region");
    assert!(interval.is_idle(), "what was counted is not counted again");
}

fn reset_of_everything() {
    let place = Place::new(1);
    let server = place.region.claim(0).expect("a slot");
    record(&server, 100, 200, 5);
    let gauge = server.gauge::<i64>("in_flight").expect("a gauge");
    gauge.set(4);
    let mut primary = place.primary();
    primary.reset();
    let interval = primary.drain();
    assert!(interval.is_idle());
    assert_eq!(interval.gauge("load_running"), None);
    assert_eq!(interval.gauge("in_flight"), None);
    let mut inspector = place.region.inspector().expect("an inspector");
    assert_eq!(inspector.totals().get("prompt"), 100, "totals survive a reset");

    record(&server, 1, 2, 3);
    gauge.add(1);
    let interval = primary.drain();
    assert_eq!((interval.delta("prompt"), interval.gauge("load_running")), (1, Some(3.0)));
    assert_eq!(interval.gauge("in_flight"), Some(5.0), "a reset hides a value and keeps it");
}

fn rare_counters_add_up() {
    let place = Place::new(2);
    let servers = [0, 1].map(|i| place.region.claim(i).expect("a slot"));
    for (server, preemptions, corrupted) in [(&servers[0], 5, 2), (&servers[1], 3, 1)] {
        server.counter("preemptions").expect("a counter").add(preemptions);
        server.counter("corrupted").expect("a counter").add(corrupted);
    }
    let interval = place.primary().drain();
    assert_eq!((interval.delta("preemptions"), interval.delta("corrupted")), (8, 3));
}
