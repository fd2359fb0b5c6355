//! Thousands of readings while a primary drains, is killed and replaced: no counter steps back.

use std::collections::HashMap;

use shmstats::Inspector;
use shmstats::prometheus::Format;

use crate::support::{Exporter, Folder, Process};

/// The counters of a text, by series.
fn counters(text: &str) -> impl Iterator<Item = (&str, u64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.filter_map(|line| line.rsplit_once(' '));
    samples
        .filter(|(series, _)| series.split('{').next().is_some_and(|name| name.ends_with("_total")))
        .map(|(series, value)| (series, value.parse().expect("a whole number")))
}

/// The highest value seen of each series.
#[derive(Default)]
struct Seen {
    highest: HashMap<String, u64>,
    rises: u64,
}

impl Seen {
    #[track_caller]
    fn check(&mut self, text: &str) {
        for (series, value) in counters(text) {
            match self.highest.get_mut(series) {
                Some(before) => {
                    assert!(value >= *before, "{series}: {value} after {before}");
                    self.rises += u64::from(value > *before);
                    *before = value;
                }
                None => {
                    self.highest.insert(series.into(), value);
                }
            }
        }
    }
}

#[test]
fn ten_thousand_scrapes_in_which_no_counter_steps_back() {
    let folder = Folder::new();
    let (region, path) = folder.region("shop.shmstats", 2);
    let _servers: Vec<_> = (0..2).map(|i| Process::server(&path, i)).collect();
    let mut primary = Process::primary(&path);
    drop(region);
    let exporter = Exporter::start(&folder, &[path.to_str().unwrap()]);
    let mut inspector = Inspector::open(&path).unwrap();
    let mut seen = Seen::default();
    let mut over_http = Seen::default();
    let mut text = Vec::new();
    for n in 0..10_000 {
        text.clear();
        inspector.encode(Format::Text, &mut text).unwrap();
        seen.check(std::str::from_utf8(&text).unwrap());
        if n % 25 == 0 {
            over_http.check(&exporter.metrics());
        }
        if n % 500 == 499 {
            // In the middle of a drain, as often as not.
            primary.kill();
            primary = Process::primary(&path);
        }
    }
    assert!(seen.rises > 1000, "{} rises", seen.rises);
    assert!(over_http.rises > 100, "{} rises", over_http.rises);
}

#[test]
fn a_primary_that_is_stopped_in_the_middle_of_a_drain() {
    let folder = Folder::new();
    let (region, path) = folder.region("shop.shmstats", 2);
    let _servers: Vec<_> = (0..2).map(|i| Process::server(&path, i)).collect();
    let primary = Process::primary(&path);
    drop(region);
    let mut inspector = Inspector::open(&path).unwrap();
    let mut seen = Seen::default();
    for _ in 0..30 {
        primary.signal(nix::sys::signal::Signal::SIGSTOP);
        for _ in 0..5 {
            let mut text = Vec::new();
            inspector.encode(Format::OpenMetrics, &mut text).unwrap();
            seen.check(std::str::from_utf8(&text).unwrap());
            // One that knows nothing of before leaves out what it cannot know.
            let mut fresh = Vec::new();
            Inspector::open(&path).unwrap().encode(Format::OpenMetrics, &mut fresh).unwrap();
            seen.check(std::str::from_utf8(&fresh).unwrap());
        }
        primary.signal(nix::sys::signal::Signal::SIGCONT);
        for _ in 0..5 {
            let mut text = Vec::new();
            inspector.encode(Format::Text, &mut text).unwrap();
            seen.check(std::str::from_utf8(&text).unwrap());
        }
    }
}
