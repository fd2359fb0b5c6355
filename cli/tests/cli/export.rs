//! The exporter over HTTP and once.

use std::net::TcpStream;

use nix::sys::signal::Signal;

use crate::support::{Exporter, Folder, Process, sample, write};

#[test]
fn it_starts_before_any_region_and_finds_each() {
    let folder = Folder::new();
    let exporter = Exporter::start(&folder, &[]);
    assert_eq!(sample(&exporter.metrics(), "shmstats_regions_exported"), Some(0.0));

    let (region, path) = folder.region("shop.shmstats", 2);
    region.claim(0).unwrap().counter("orders").unwrap().add(5);
    let orders = "shop_orders_total{server=\"0\",shm_region=\"shop\"}";
    assert_eq!(sample(&exporter.metrics(), orders), Some(5.0));

    // A bad one takes nothing down.
    write(&folder.file("bad.shmstats"), &[0; 4096]);
    let text = exporter.metrics();
    assert_eq!(sample(&text, "shmstats_regions_skipped"), Some(1.0));
    assert_eq!(sample(&text, orders), Some(5.0));

    // Removed and created again: another region, which begins at 0.
    region.remove().unwrap();
    assert_eq!(sample(&exporter.metrics(), orders), None);
    let region = shmstats::Region::create(&path, &crate::support::schema(), 2).unwrap();
    let server = region.claim(0).unwrap();
    assert_eq!(sample(&exporter.metrics(), orders), Some(0.0));
    drop(server);
}

#[test]
fn a_file_may_be_named_before_it_is_there() {
    let folder = Folder::new();
    let exporter = Exporter::start(&folder, &[folder.file("shop.shmstats").to_str().unwrap()]);
    assert_eq!(sample(&exporter.metrics(), "shmstats_regions_exported"), Some(0.0));
    let (region, _) = folder.region("shop.shmstats", 2);
    let _server = region.claim(0).unwrap();
    let text = exporter.metrics();
    assert_eq!(sample(&text, "shop_orders_total{server=\"0\"}"), Some(0.0), "{text}");
    assert_eq!(sample(&text, "shmstats_regions_skipped"), Some(0.0));
}

#[test]
fn formats_by_content_negotiation_and_other_requests() {
    let folder = Folder::new();
    let (region, path) = folder.region("shop.shmstats", 1);
    let server = region.claim(0).unwrap();
    server.single_writer("sent").unwrap().add(10);
    let exporter = Exporter::start(&folder, &[path.to_str().unwrap()]);

    let (head, body) = exporter.get("/metrics", "text/plain;version=0.0.4;q=0.5,*/*;q=0.1");
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    assert!(body.contains("# TYPE shop_sent_bytes_total counter\n"), "{body}");
    assert!(body.contains("# HELP shop_sent_bytes_total Bytes \"sent\"\\nout\n"), "{body}");
    assert!(body.contains("shop_sent_bytes_total{server=\"0\"} 10\n"), "{body}");
    assert!(!body.contains("_created"), "{body}");

    let accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let (head, body) = exporter.get("/metrics", accept);
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.contains("# TYPE shop_sent_bytes counter\n# UNIT shop_sent_bytes bytes\n"));
    assert!(body.contains("shop_sent_bytes_created{server=\"0\"} 1"), "{body}");
    assert!(body.ends_with("# EOF\n"), "{body}");

    assert!(exporter.get("/", "").1.contains("/metrics"));
    assert!(exporter.get("/other", "").0.starts_with("http/1.1 404"));
    let (head, _) = exporter.ask("POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("http/1.1 405") && head.contains("allow: get, head"), "{head}");
    let (head, body) = exporter.ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("http/1.1 200") && body.is_empty(), "{head}");
    let (head, _) = exporter.ask("nonsense\r\n\r\n");
    assert!(head.starts_with("http/1.1 400"), "{head}");
}

#[test]
fn gauges_by_scope_and_the_dead_have_none() {
    let folder = Folder::new();
    let (region, path) = folder.region("shop.shmstats", 2);
    let path = path.to_str().unwrap();
    let servers: Vec<_> = (0..2).map(|i| Process::server(path.as_ref(), i)).collect();
    drop(region);
    let text = folder.run(&["export", path, "--once"]).good();
    assert_eq!(sample(&text, "shop_in_flight{server=\"0\"}"), Some(1.0));
    assert_eq!(sample(&text, "shop_in_flight{server=\"1\"}"), Some(2.0));
    assert_eq!(sample(&text, "shop_running{engine=\"0\"}"), Some(10.0));
    assert_eq!(sample(&text, "shop_running{engine=\"1\"}"), Some(11.0));
    assert_eq!(sample(&text, "shmstats_servers{state=\"alive\"}"), Some(2.0));
    assert_eq!(sample(&text, "shmstats_primary_alive"), Some(0.0));
    assert!(
        sample(&text, "shmstats_snapshot_age_seconds{engine=\"0\",snapshot=\"engine\"}").is_some()
    );

    let text = folder.run(&["export", path, "--once", "--sum"]).good();
    assert_eq!(sample(&text, "shop_in_flight"), Some(3.0), "added up");
    assert_eq!(sample(&text, "shop_load"), Some(0.25), "the largest");
    assert!(sample(&text, "shop_orders_total").unwrap() > 0.0);
    assert_eq!(sample(&text, "shop_running{engine=\"1\"}"), Some(11.0));

    let mut servers = servers.into_iter();
    servers.next().unwrap().kill();
    let text = folder.run(&["export", path, "--once"]).good();
    assert_eq!(sample(&text, "shop_in_flight{server=\"0\"}"), None);
    assert_eq!(sample(&text, "shop_running{engine=\"0\"}"), Some(10.0), "the engine lives on");
    assert_eq!(sample(&text, "shmstats_servers{state=\"dead\"}"), Some(1.0));
    let orders = sample(&text, "shop_orders_total{server=\"0\"}").unwrap();

    servers.next().unwrap().kill();
    let text = folder.run(&["export", path, "--once"]).good();
    assert_eq!(sample(&text, "shop_orders_total{server=\"0\"}"), Some(orders), "history stays");
    assert!(!text.contains("shop_running{"), "nobody is there to tell of an engine");
    assert_eq!(sample(&text, "shmstats_attached"), Some(0.0));
}

#[test]
fn families_of_several_regions_are_merged_and_conflicts_counted() {
    let folder = Folder::new();
    let (one, _) = folder.region("a.shmstats", 1);
    let (two, _) = folder.region("b.shmstats", 1);
    one.claim(0).unwrap().counter("orders").unwrap().add(1);
    two.claim(0).unwrap().counter("orders").unwrap().add(2);
    let other = shmstats::Schema::builder("shop")
        .gauge(shmstats::schema::GaugeDef::u64("orders"))
        .counter("fine")
        .build()
        .unwrap();
    let _three = shmstats::Region::create(folder.file("c.shmstats"), &other, 1).unwrap();
    let dir = folder.path().to_str().unwrap();
    let text = folder.run(&["export", dir, "--once"]).good();
    assert_eq!(text.matches("# TYPE shop_orders_total counter").count(), 1);
    assert_eq!(sample(&text, "shop_orders_total{server=\"0\",shm_region=\"a\"}"), Some(1.0));
    assert_eq!(sample(&text, "shop_orders_total{server=\"0\",shm_region=\"b\"}"), Some(2.0));
    assert_eq!(sample(&text, "shmstats_families_skipped"), Some(1.0));
    assert_eq!(sample(&text, "shmstats_regions_exported"), Some(3.0));

    // Several paths: the path is the label, so that two of one name stay apart.
    let (a, b) = (folder.file("a.shmstats"), folder.file("b.shmstats"));
    let paths = [a.to_str().unwrap(), b.to_str().unwrap()];
    let text = folder.run(&["export", paths[0], paths[1], "--once"]).good();
    let series = format!("shop_orders_total{{server=\"0\",shm_region=\"{}\"}}", paths[1]);
    assert_eq!(sample(&text, &series), Some(2.0), "{text}");
}

#[test]
fn a_port_that_is_taken_and_clients_that_say_nothing() {
    let folder = Folder::new();
    let mut exporter = Exporter::start(&folder, &[]);
    let said = folder.run(&["export", "--listen", &exporter.address]).failed(1);
    assert!(said.starts_with(&format!("cannot listen on {}: ", exporter.address)), "{said}");
    // More than are served at a time: they are hung up on, and who asks gets an answer.
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(&exporter.address).unwrap()).collect();
    exporter.metrics();
    drop(silent);
    exporter.process.signal(Signal::SIGTERM);
    assert_eq!(exporter.process.ended(), Some(0));
}
