//! The three ways to export say the same.

use std::collections::BTreeSet;

use prometheus_client::registry::Registry;

use super::*;
use crate::region::Region;
use crate::schema::{CounterDef, GaugeDef, Rollup, Schema, SnapshotDef};

fn region() -> Region {
    let engine = |n: u32| {
        SnapshotDef::new("engine")
            .shared()
            .label("engine", n.to_string())
            .gauge(GaugeDef::u64("running"))
            .gauge(GaugeDef::f64("usage").unit("ratio").mean())
    };
    let schema = Schema::builder("n")
        .counter(CounterDef::new("sent").unit("bytes").help("Two\nlines"))
        .counter(CounterDef::new("asked").single_writer().family("path", ["/", "a\"b\\c"]))
        .gauge(GaugeDef::i64("in_flight"))
        .gauge(GaugeDef::f64("load").rollup(Rollup::Max))
        .snapshot(engine(0))
        .snapshot(engine(1))
        .build()
        .unwrap();
    Region::private(&schema, 3)
}

/// All samples of a text, but creation times and what changes from one reading to the next.
fn samples(text: &str) -> BTreeSet<String> {
    let fixed = |line: &&str| {
        !line.starts_with('#') && !line.contains("_created") && !line.contains("_seconds")
    };
    text.lines().filter(fixed).map(String::from).collect()
}

fn encoded(region: &Region, format: Format) -> String {
    let mut text = Vec::new();
    region.inspector().unwrap().encode(format, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn collected(region: &Region, options: Options) -> Registry {
    let mut registry = Registry::default();
    let collector = RegionCollector::new(region.inspector().unwrap(), options);
    registry.register_collector(Box::new(collector));
    registry
}

#[test]
fn the_collector_says_what_encode_says() {
    let region = region();
    let servers = [region.claim(0).unwrap(), region.claim(2).unwrap()];
    servers[0].counter("sent").unwrap().add(7);
    servers[1].single_writer_with("asked", &[("path", "a\"b\\c")]).unwrap().add(3);
    servers[1].gauge::<i64>("in_flight").unwrap().set(-4);
    servers[0].gauge::<f64>("load").unwrap().set(f64::INFINITY);
    let mut engine = servers[1].snapshot("engine", &[("engine", "1")]).unwrap();
    let running = engine.field::<u64>("running").unwrap();
    engine.set(running, 5);
    engine.publish();

    let ours = encoded(&region, Format::Text);
    let expected = [
        "n_sent_bytes_total{server=\"0\"} 7",
        "n_sent_bytes_total{server=\"2\"} 0",
        "n_asked_total{path=\"a\\\"b\\\\c\",server=\"2\"} 3",
        "n_in_flight{server=\"2\"} -4",
        "n_load{server=\"0\"} +Inf",
        "n_running{engine=\"1\"} 5",
        "shmstats_servers{state=\"alive\"} 2",
        "shmstats_families_skipped 0",
    ];
    for line in expected {
        assert!(samples(&ours).contains(line), "{line} in\n{ours}");
    }
    assert!(!ours.contains("n_usage_ratio{"), "not given is absent");
    assert!(!ours.contains("server=\"1\""), "never claimed");

    let registry = collected(&region, Options::default());
    let mut theirs = String::new();
    prometheus_client::encoding::prometheus_text::encode(&mut theirs, &registry).unwrap();
    assert_eq!(samples(&theirs), samples(&ours));
    theirs.clear();
    prometheus_client::encoding::text::encode(&mut theirs, &registry).unwrap();
    let same_number = |line: String| line.replace(" inf", " +Inf");
    let theirs: BTreeSet<String> = samples(&theirs).into_iter().map(same_number).collect();
    assert_eq!(theirs, samples(&encoded(&region, Format::OpenMetrics)));
    assert!(encoded(&region, Format::OpenMetrics).contains("n_sent_bytes_created{server=\"0\"} "));
}

#[test]
fn sums_are_over_servers_and_not_over_labels() {
    let region = region();
    for (slot, load) in [(0, 0.5), (1, 2.0)] {
        let server = region.claim(slot).unwrap();
        server.counter("sent").unwrap().add(10);
        // Kept alive to the end, or its gauges would go.
        server.gauge::<f64>("load").unwrap().set(load);
        std::mem::forget(server);
    }
    let mut exposition = Exposition::new(Options::default().sum(true));
    exposition.add(&mut region.inspector().unwrap(), Some("r")).unwrap();
    let mut text = Vec::new();
    exposition.write(Format::Text, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    for line in [
        "n_sent_bytes_total{shm_region=\"r\"} 20",
        "n_asked_total{path=\"/\",shm_region=\"r\"} 0",
        "n_load{shm_region=\"r\"} 2",
    ] {
        assert!(samples(&text).contains(line), "{line} in\n{text}");
    }
}

#[test]
fn what_is_too_much_for_a_scrape_is_refused_before_it_is_made() {
    let many = CounterDef::new("c").family("n", (0..4000).map(|n| n.to_string()));
    let schema = Schema::builder("n").counter(many).build().unwrap();
    let region = Region::options(1).slots(70).private(&schema);
    let _servers: Vec<_> = (0..70).map(|slot| region.claim(slot).unwrap()).collect();
    let mut inspector = region.inspector().unwrap();
    let error = Exposition::default().add(&mut inspector, None).unwrap_err();
    let said = error.to_string();
    assert!(said.ends_with("expected at most 250000 samples, found 280000"), "{said}");
    let mut summed = Exposition::new(Options::default().sum(true));
    summed.add(&mut inspector, None).unwrap();

    let registry = collected(&region, Options::default());
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains("shmstats_regions_skipped 1\n"), "{text}");
}

#[test]
fn prometheus_and_browsers_get_what_they_like_best() {
    let of = Format::negotiate;
    assert_eq!(
        of("application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
            version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
        Format::OpenMetrics
    );
    assert_eq!(of("text/plain;version=0.0.4;q=0.5,*/*;q=0.1"), Format::Text);
    assert_eq!(of("text/plain, application/openmetrics-text;q=0.5"), Format::Text);
    assert_eq!(of("application/openmetrics-text;q=0"), Format::Text);
    assert_eq!(of("Application/OpenMetrics-Text ; q=1"), Format::OpenMetrics);
    assert_eq!(of("text/html,application/xhtml+xml,*/*;q=0.8"), Format::Text);
    assert_eq!(of(""), Format::Text);
    assert_eq!(of(";;;q=,,application/openmetrics-text;q=x"), Format::OpenMetrics);
}
