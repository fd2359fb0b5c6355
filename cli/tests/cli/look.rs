//! ls, inspect, check and log on live and on dead regions.

use std::os::unix::fs::FileExt;

use nix::sys::signal::Signal;
use serde_json::Value as Json;

use crate::support::{Folder, Process, wait_until};

fn inspect(folder: &Folder, path: &str) -> Json {
    serde_json::from_str(&folder.run(&["inspect", path, "--json"]).good()).unwrap()
}

fn named<'a>(list: &'a Json, name: &str) -> &'a Json {
    let found = list.as_array().unwrap().iter().find(|item| item["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {list}"))
}

#[test]
fn an_empty_folder_has_no_region() {
    let folder = Folder::new();
    let out = folder.run(&["ls"]).good();
    assert_eq!(out, format!("no region in {}\n", folder.path().display()));
    let said = folder.run(&["inspect"]).failed(1);
    assert_eq!(said, format!("no region in {}", folder.path().display()));
}

#[test]
fn live_then_killed() {
    let folder = Folder::new();
    let (region, path) = folder.region("shop-1.shmstats", 3);
    let path = path.to_str().unwrap();
    let servers: Vec<_> = (0..2).map(|i| Process::server(path.as_ref(), i)).collect();
    let primary = Process::primary(path.as_ref());
    drop(region);

    let ls = folder.run(&["ls"]).good();
    let row = ls.lines().nth(1).unwrap();
    assert!(row.starts_with("shop-1.shmstats  live   2/3 "), "{ls}");

    // The only live region is found by itself.
    let report: Json = serde_json::from_str(&folder.run(&["inspect", "--json"]).good()).unwrap();
    assert_eq!(report["path"], path);
    assert_eq!(report["shape"], 1);
    assert_eq!(report["region"]["live"], true);
    assert_eq!(report["servers"]["alive"], 2);
    assert_eq!(report["servers"]["free_slots"], 4);
    assert_eq!(report["primary"]["alive"], true);
    assert_eq!(report["primary"]["pid"], primary.pid());
    assert!(report["primary"]["drains"].as_u64().unwrap() > 10);
    assert_eq!(report["schema"]["namespace"], "shop");
    for (slot, server) in servers.iter().enumerate() {
        assert_eq!(report["slots"][slot]["state"], "alive");
        assert_eq!(report["slots"][slot]["pid"], server.pid());
        assert_eq!(report["slots"][slot]["server_index"], slot);
        assert_eq!(report["slots"][slot]["generation"], 2);
    }
    let orders = named(&report["counters"], "orders");
    let total = orders["total"].as_u64().unwrap();
    let by_slot: u64 = (0..2).map(|slot| orders["by_slot"][slot]["total"].as_u64().unwrap()).sum();
    assert!(total > 0 && total.is_multiple_of(3));
    assert_eq!(total, by_slot);
    let in_flight = named(&report["gauges"], "in_flight");
    assert_eq!((&in_flight["value"], &in_flight["rollup"]), (&3.0.into(), &"sum".into()));
    let load = named(&report["gauges"], "load");
    assert_eq!((&load["value"], &load["rollup"]), (&0.25.into(), &"max".into()));
    for engine in 0..2 {
        let shared = &report["shared"][engine];
        assert_eq!(shared["labels"]["engine"], engine.to_string());
        assert_eq!(shared["slot"], engine, "who saw it");
        assert_eq!(named(&shared["values"], "running")["value"], 10 + engine);
    }
    assert_eq!(named(&report["rollups"], "running")["value"], 21.0);
    assert_eq!(named(&report["rollups"], "kv_usage")["value"], 0.5);

    let text = folder.run(&["inspect"]).good();
    for part in ["live: 3 configured, 2 alive", "orders", "answers{status=\"2xx\"}", "SHARED"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!text.contains('\x1b'), "plain text where there is no terminal");
    let check = folder.run(&["check"]).good();
    assert!(check.starts_with(&format!("{path}: good: version 1, ")), "{check}");

    // A stopped server stands out, and a killed one is dead; nobody waits for either.
    servers[1].signal(Signal::SIGSTOP);
    wait_until("the stop", || {
        (inspect(&folder, path)["slots"][1]["stopped"] == true).then_some(())
    });
    let text = folder.run(&["inspect"]).good();
    let row = text.lines().find(|line| line.trim_start().starts_with("1       1  ")).unwrap();
    assert!(row.contains("stopped"), "{row}");

    primary.kill();
    servers.into_iter().for_each(Process::kill);
    let report = inspect(&folder, path);
    assert_eq!(report["region"]["live"], false);
    assert_eq!(report["servers"]["dead"], 2);
    assert_eq!(report["primary"]["alive"], false);
    assert_eq!(report["health"]["settled"], true);
    assert!(named(&report["counters"], "orders")["total"].as_u64().unwrap() >= total);
    assert_eq!(named(&report["gauges"], "in_flight")["value"], Json::Null);
    assert_eq!(report["shared"][0]["slot"], 0, "for the post-mortem");
    let ls = folder.run(&["ls"]).good();
    assert!(ls.lines().nth(1).unwrap().starts_with("shop-1.shmstats  dead   0/3 "), "{ls}");
    let said = folder.run(&["inspect"]).failed(1);
    assert!(said.ends_with("name one of those that are not: shop-1.shmstats"), "{said}");
    assert!(folder.run(&["check", path]).good().contains("2 servers ended without"));
}

#[test]
fn of_several_live_regions_one_has_to_be_named() {
    let folder = Folder::new();
    let _one = folder.region("a.shmstats", 1);
    // By what it begins with, and not by its name.
    let _two = folder.region("b", 1);
    let said = folder.run(&["check"]).failed(2);
    assert!(said.ends_with("name one of a.shmstats, b"), "{said}");
}

#[test]
fn the_line_from_outside_takes_nothing_from_the_primary() {
    let folder = Folder::new();
    let (region, path) = folder.region("shop.shmstats", 2);
    let path = path.to_str().unwrap();
    let server = region.claim(0).unwrap();
    let orders = server.counter("orders").unwrap();
    let mut log =
        Process::start(&mut folder.command(&["log", path, "--interval", "50ms", "--count", "2"]));
    // Counted before the first line or after it: it is in one of them unless it was before all.
    let first = log.wait_for("All 2 servers: orders");
    assert!(first.ends_with("kv_usage -"), "{first}");
    log.wait_for("All 2 servers: orders");
    assert_eq!(log.ended(), Some(0));
    orders.add(7);
    let mut primary = region.primary().unwrap();
    assert_eq!(primary.drain().delta("orders"), 7);
}

#[test]
fn a_line_as_json_and_as_an_llm_s() {
    let folder = Folder::new();
    let path = folder.file("llm.shmstats");
    let region = shmstats::Region::create(&path, &shmstats::llm::schema(1).unwrap(), 4).unwrap();
    let path = path.to_str().unwrap();
    let line = folder.run(&["log", path, "--interval", "20ms", "--count", "1"]).good();
    assert_eq!(
        line,
        "All 4 API Servers: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 \
         tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit \
         rate: 0.0%\n"
    );
    let args = ["log", path, "--interval", "20ms", "--count", "1", "--format", "json"];
    let line: Json = serde_json::from_str(&folder.run(&args).good()).unwrap();
    assert_eq!(line["servers"]["configured"], 4);
    assert_eq!(named(&line["counters"], "prompt_tokens")["delta"], 0);
    drop(region);
}

#[test]
fn a_log_follows_the_next_region_of_its_name() {
    let folder = Folder::new();
    let (region, path) = folder.region("shop.shmstats", 1);
    let path_text = path.to_str().unwrap();
    let log = Process::start(&mut folder.command(&["log", path_text, "--interval", "5ms"]));
    log.wait_for("All 1 servers");
    region.remove().unwrap();
    let (_region, _) = folder.region("shop.shmstats", 5);
    log.wait_for("All 5 servers");
}

#[test]
fn a_region_of_another_boot_keeps_its_counts_and_nothing_else() {
    let folder = Folder::new();
    let (region, path) = folder.region("shop.shmstats", 1);
    let server = region.claim(0).unwrap();
    server.counter("orders").unwrap().add(5);
    let mut engine = server.snapshot("engine", &[("engine", "0")]).unwrap();
    let running = engine.field("running").unwrap();
    engine.set(running, 3_u64);
    engine.publish();
    drop((engine, server, region));
    let path = path.to_str().unwrap();
    assert_eq!(named(&inspect(&folder, path)["rollups"], "running")["value"], 3.0);
    // `boot_id` of the region block.
    let mut bytes = std::fs::read(path).unwrap();
    bytes[256 + 16..256 + 24].copy_from_slice(&77_u64.to_ne_bytes());
    std::fs::write(path, bytes).unwrap();
    let report = inspect(&folder, path);
    assert_eq!(report["region"]["this_boot"], false);
    assert_eq!(named(&report["counters"], "orders")["total"], 5);
    assert_eq!(named(&report["rollups"], "running")["value"], Json::Null);
    assert_eq!(report["slots"][0]["silent_seconds"], Json::Null);
    assert_eq!(report["primary"]["last_drain_age_seconds"], Json::Null);
    let text = folder.run(&["inspect", path]).good();
    assert!(text.contains("nobody has written to it since this machine started"), "{text}");
    assert!(folder.run(&["check", path]).good().contains("note: nobody has written to it"));
}

#[test]
fn readings_that_are_not_settled_are_shown_as_such() {
    let folder = Folder::new();
    let (region, path) = folder.region("shop.shmstats", 2);
    let server = region.claim(0).unwrap();
    server.counter("orders").unwrap().add(7);
    let primary = region.primary().unwrap();
    // As a primary leaves it that is stopped in a drain of slot 0, before its first swap: the
    // account's sequence is odd (docs/format.md: `slots_offset` at 72, `ledger_offset` at 148).
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let mut head = [0; 256];
    file.read_exact_at(&mut head, 0).unwrap();
    let slots = u64::from_ne_bytes(head[72..80].try_into().unwrap());
    let accounts = u64::from(u32::from_ne_bytes(head[148..152].try_into().unwrap()));
    file.write_all_at(&1_u64.to_ne_bytes(), slots + accounts).unwrap();

    let path = path.to_str().unwrap();
    let report = inspect(&folder, path);
    assert_eq!(report["health"]["settled"], false);
    assert_eq!(report["slots"][0]["settled"], false);
    assert_eq!(report["slots"][1]["settled"], true);
    let text = folder.run(&["inspect", path]).good();
    assert!(text.contains("not settled: totals marked *"), "{text}");
    assert!(text.lines().any(|line| line.trim_start().starts_with("0*  ")), "{text}");
    assert!(folder.run(&["check", path]).good().contains("totals of slots 0 are not settled"));
    let top = folder.run(&["top", path, "--refresh", "10ms"]).good();
    assert!(top.contains("totals not settled"), "{top}");
    // What cannot be known is not exported.
    let metrics = folder.run(&["export", path, "--once"]).good();
    assert!(metrics.contains("shmstats_unsettled_slots 1\n"), "{metrics}");
    assert!(!metrics.contains("shop_orders_total{"), "{metrics}");
    let metrics = folder.run(&["export", path, "--once", "--sum"]).good();
    assert!(!metrics.contains("shop_orders_total "), "{metrics}");

    // Once the primary is gone it is as settled as it will get, and the next one counts that.
    drop(primary);
    let report = inspect(&folder, path);
    assert_eq!(report["health"]["settled"], true);
    assert_eq!(named(&report["counters"], "orders")["total"], 7);
    assert_eq!(region.primary().unwrap().drain().delta("orders"), 7);
    assert_eq!(inspect(&folder, path)["health"]["interrupted_drains"], 1);
    assert!(folder.run(&["ls"]).good().contains("1 interrupted drains"));
}

/// The names of all members, at any depth, but for those of label sets.
fn members(json: &Json, names: &mut std::collections::BTreeSet<String>) {
    match json {
        Json::Array(items) => items.iter().for_each(|item| members(item, names)),
        Json::Object(object) => {
            for (name, value) in object {
                names.insert(name.clone());
                if name != "labels" {
                    members(value, names);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn every_member_of_the_json_is_in_its_page() {
    let folder = Folder::new();
    let (region, path) = folder.region("shop.shmstats", 1);
    let server = region.claim(0).unwrap();
    server.gauge::<i64>("in_flight").unwrap().set(1);
    let path = path.to_str().unwrap();
    let args = ["log", path, "--interval", "5ms", "--count", "1", "--format", "json"];
    let mut names = std::collections::BTreeSet::new();
    members(&inspect(&folder, path), &mut names);
    members(&serde_json::from_str(&folder.run(&args).good()).unwrap(), &mut names);
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/json.md"));
    let page = page.unwrap();
    let missing: Vec<_> = names.iter().filter(|n| !page.contains(&format!("`{n}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(names.len() > 60, "{names:?}");
}
