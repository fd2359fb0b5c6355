//! The stat logger: who logs, when, and what.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use shmstats::logger::StatLoggerBuilder;
use shmstats::{Interval, Region, Server, StatLogger, llm};
use tempfile::TempDir;

use crate::support::{Place, until};

tests![
    only_the_primary_logs,
    another_takes_over,
    the_last_interval_is_logged,
    a_private_server_joins_later,
    a_second_logger_of_a_private_server_takes_no_slot,
    the_llm_line,
    idle_lines_are_quiet,
    a_thread_ticks_by_itself,
];

type Lines = Arc<Mutex<Vec<String>>>;

/// A line that keeps what it is given: the tokens of the interval.
fn kept(builder: StatLoggerBuilder, lines: &Lines) -> StatLogger {
    let lines = Arc::clone(lines);
    let line = move |interval: &Interval| {
        let line = format!("prompt {}", interval.delta("prompt"));
        lines.lock().expect("the lines").push(line.clone());
        line
    };
    builder.interval(Duration::from_millis(1)).line(line).build()
}

fn taken(lines: &Lines) -> Vec<String> {
    std::mem::take(&mut *lines.lock().expect("the lines"))
}

fn add(server: &Server, n: u64) {
    server.counter("prompt").expect("a counter").add(n);
}

/// Servers on regions of their own, as if in processes of their own.
fn servers(place: &Place) -> [Server; 2] {
    [0, 1].map(|i| Region::open(place.path()).expect("the region").claim(i).expect("a slot"))
}

fn only_the_primary_logs() {
    let place = Place::new(2);
    let servers = servers(&place);
    let lines = [Lines::default(), Lines::default()];
    // The other one starts first and ticks first, but server 0 has the first interval to itself.
    let mut other = kept(StatLogger::builder(&servers[1]), &lines[1]);
    let mut zero = kept(StatLogger::builder(&servers[0]), &lines[0]);
    assert!(zero.is_primary() && !other.is_primary());
    add(&servers[0], 10);
    add(&servers[1], 5);
    other.tick();
    zero.tick();
    assert_eq!(taken(&lines[0]), ["prompt 15"]);
    assert_eq!(taken(&lines[1]), [""; 0]);
}

fn another_takes_over() {
    let place = Place::new(2);
    let servers = servers(&place);
    let lines = [Lines::default(), Lines::default()];
    let mut zero = kept(StatLogger::builder(&servers[0]), &lines[0]);
    let mut other = kept(StatLogger::builder(&servers[1]), &lines[1]);
    zero.tick();
    drop(zero);
    add(&servers[1], 7);
    until("the first interval to be over", || {
        other.tick();
        other.is_primary()
    });
    assert_eq!(taken(&lines[1]), ["prompt 7"]);
    let back = kept(StatLogger::builder(&servers[0]), &lines[0]);
    assert!(!back.is_primary(), "no handing back");
}

fn the_last_interval_is_logged() {
    let place = Place::new(2);
    let servers = servers(&place);
    let lines = [Lines::default(), Lines::default()];
    let mut zero = kept(StatLogger::builder(&servers[0]), &lines[0]);
    let mut other = kept(StatLogger::builder(&servers[1]), &lines[1]);
    add(&servers[0], 1);
    add(&servers[1], 2);
    zero.finish();
    assert_eq!(taken(&lines[0]), ["prompt 3"]);
    add(&servers[1], 4);
    other.finish();
    assert_eq!(taken(&lines[1]), ["prompt 4"], "the last one out logs the rest");
    other.finish();
    assert_eq!(taken(&lines[1]), [""; 0], "nothing is left to say");
}

fn a_private_server_joins_later() {
    let folder = TempDir::new_in("/dev/shm").expect("a folder");
    let path = folder.path().join("late.shmstats");
    let server = Server::join(&path, Some(0), &crate::support::schema());
    assert!(server.region().is_private());
    add(&server, 5);
    server.single_writer("single").expect("a counter").add(6);
    server.gauge::<i64>("in_flight").expect("a gauge").set(2);
    crate::support::publish_engine(&server, "0", 3, 0.5);
    let lines = Lines::default();
    let mut logger = kept(StatLogger::builder(&server), &lines);
    logger.tick();
    assert_eq!(taken(&lines), [""; 0], "it waits for the region and keeps its counts");

    let region = Region::create(&path, &crate::support::schema(), 2).expect("a region");
    logger.tick();
    add(&server, 1);
    logger.tick();
    let mut inspector = region.inspector().expect("an inspector");
    let totals = inspector.totals();
    assert_eq!((totals.get("prompt"), totals.get("single")), (6, 6), "nothing twice");
    let observation = inspector.observe().expect("an observation");
    let schema = region.schema();
    let gauge = |name, labels: &[(&str, &str)]| {
        observation.gauge_of(schema.find(name, labels).expect("a record"))
    };
    assert_eq!(gauge("in_flight", &[]), Some(2.0));
    assert_eq!(gauge("running", &[("engine", "0")]), Some(3.0));
}

fn a_second_logger_of_a_private_server_takes_no_slot() {
    let folder = TempDir::new_in("/dev/shm").expect("a folder");
    let path = folder.path().join("late.shmstats");
    let server = Server::join(&path, Some(0), &crate::support::schema());
    let lines = Lines::default();
    let mut first = kept(StatLogger::builder(&server), &lines);
    let mut second = kept(StatLogger::builder(&server), &lines);
    let region = Region::create(&path, &crate::support::schema(), 2).expect("a region");
    for _ in 0..3 {
        first.tick();
        second.tick();
    }
    let mut inspector = region.inspector().expect("an inspector");
    let observation = inspector.observe().expect("an observation");
    let claims: u64 = observation.owners.iter().map(|owner| owner.generation / 2).sum();
    assert_eq!((claims, observation.refused_servers), (1, 0));
}

fn the_llm_line() {
    let folder = TempDir::new_in("/dev/shm").expect("a folder");
    let schema = llm::schema(1).expect("a schema");
    let region = Region::create(folder.path().join("llm"), &schema, 4).expect("a region");
    let server = region.claim(0).expect("a slot");
    let recorder = llm::Recorder::new(&server).expect("a recorder");
    let scheduler = llm::SchedulerStats {
        running: 12,
        waiting: 5,
        kv_cache_usage: 0.653,
        ..Default::default()
    };
    recorder.record(0, Some(&scheduler), None);
    let mut primary = region.primary().expect("the primary lease");
    let mut line = llm::LlmLine::default();
    let text = shmstats::logger::Line::line(&mut line, &primary.drain());
    assert_eq!(
        text,
        "All 4 API Servers: Avg prompt throughput: 0.0 tokens/s, \
         Avg generation throughput: 0.0 tokens/s, Running: 12 reqs, Waiting: 5 reqs, \
         GPU KV cache usage: 65.3%, Prefix cache hit rate: 0.0%"
    );
    let cache = |queries, hits| llm::CacheStats { requests: 1, queries, hits };
    let iteration = llm::IterationStats {
        prompt_tokens: 20,
        prompt_tokens_computed: 10,
        generation_tokens: 5,
        preemptions: 2,
        corrupted_reqs: 1,
        prefix_cache: cache(8, 1),
        external_prefix_cache: cache(4, 1),
        mm_cache: cache(2, 1),
    };
    recorder.record(0, None, Some(&iteration));
    let interval = primary.drain();
    let seconds = interval.elapsed().as_secs_f64();
    let text = shmstats::logger::Line::line(&mut line, &interval);
    assert_eq!(
        text,
        format!(
            "All 4 API Servers: Avg prompt throughput: {:.1} tokens/s, \
             Avg generation throughput: {:.1} tokens/s, Running: 12 reqs, Waiting: 5 reqs, \
             Preemptions: 2, GPU KV cache usage: 65.3%, Prefix cache hit rate: 12.5%, \
             Corrupted: 1 reqs, External prefix cache hit rate: 25.0%, MM cache hit rate: 50.0%",
            10.0 / seconds,
            5.0 / seconds,
        )
    );
    let mut one = llm::LlmLine::with_device("CPU");
    let private = Server::private(&schema);
    let mut primary = private.region().primary().expect("the primary lease");
    let text = shmstats::logger::Line::line(&mut one, &primary.drain());
    assert!(text.starts_with("Engine 000: Avg prompt throughput: 0.0 tokens/s"), "{text}");
    assert!(text.contains("CPU KV cache usage: 0.0%"), "{text}");
}

/// Counts how lines are emitted: the first idle one loudly, from the second on quietly.
struct Levels(Lines);

impl shmstats::logger::Line for Levels {
    fn line(&mut self, _: &Interval) -> String {
        String::new()
    }

    fn emit(&mut self, interval: &Interval, quiet: bool) {
        let level = if quiet { "debug" } else { "info" };
        self.0.lock().expect("the lines").push(format!("{level} {}", interval.delta("prompt")));
    }
}

fn idle_lines_are_quiet() {
    let place = Place::new(1);
    let server = place.region.claim(0).expect("a slot");
    let lines = Lines::default();
    let mut logger = StatLogger::builder(&server).line(Levels(Arc::clone(&lines))).build();
    for n in [1, 0, 0, 0, 2, 0, 0] {
        if n > 0 {
            add(&server, n);
        }
        logger.tick();
    }
    assert_eq!(
        taken(&lines),
        ["info 1", "info 0", "debug 0", "debug 0", "info 2", "info 0", "debug 0"]
    );
}

fn a_thread_ticks_by_itself() {
    let place = Place::new(1);
    let server = place.region.claim(0).expect("a slot");
    let lines = Lines::default();
    let thread = StatLogger::builder(&server)
        .interval(Duration::from_millis(1))
        .line(Levels(Arc::clone(&lines)))
        .spawn()
        .expect("a thread");
    until("three ticks", || lines.lock().expect("the lines").len() >= 3);
    add(&server, 9);
    thread.stop();
    let lines = taken(&lines);
    assert!(lines.contains(&"info 9".to_string()), "{lines:?}");
    drop(place.primary());
}
