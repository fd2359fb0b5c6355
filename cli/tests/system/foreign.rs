//! The plain Python server of `examples/foreign`, with a primary draining.

use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::Value as Json;
use shmstats::Schema;
use shmstats::schema::{CounterDef, GaugeDef, SnapshotDef};

use crate::support::{Folder, Process, wait_until};
use crate::{needs, root};

/// `examples/foreign/schema.toml`, which the launcher reads; compared with the region it makes.
fn schema() -> Schema {
    let single = |name| CounterDef::new(name).single_writer();
    Schema::builder("mill")
        .counter(single("grains").help("Grains ground"))
        .counter(single("flour").unit("grams").help("Flour made"))
        .counter(single("sacks").help("Sacks filled").family("size", ["large", "small"]))
        .gauge(GaugeDef::f64("speed").mean().help("How fast a worker grinds, of 1"))
        .snapshot(
            SnapshotDef::new("stone")
                .shared()
                .label("stone", "0")
                .gauge(
                    GaugeDef::f64("warmth").unit("celsius").rollup(shmstats::schema::Rollup::Max),
                )
                .gauge(GaugeDef::u64("turns")),
        )
        .build()
        .unwrap()
}

fn worker(folder: &Folder, index: u32, grains: u64) -> Process {
    let mut command = needs("python3", "python3");
    command
        .arg(root().join("examples/foreign/worker.py"))
        .args(["--grains", &grains.to_string()])
        .env("SHMSTATS_REGION", folder.file("mill.shmstats"))
        .env("SHMSTATS_SERVER_INDEX", index.to_string());
    Process::start(&mut command)
}

#[test]
fn every_count_of_another_language_is_in_exactly_one_interval() {
    let folder = Folder::new();
    let path = folder.file("mill.shmstats");
    let region = shmstats::Region::create(&path, &schema(), 3).unwrap();
    let mut primary = region.primary().unwrap();
    let mut interval = primary.interval();
    let mut workers: Vec<_> = (0..3).map(|index| worker(&folder, index, 50_000)).collect();
    let mut sums = [0; 3];
    let (mut drains, mut saw_gauges) = (0, false);
    let mut running = 3;
    while running > 0 {
        running = workers
            .iter_mut()
            .map(|worker| worker.child.try_wait().unwrap().is_none())
            .filter(|running| *running)
            .count();
        // Once more after the last has ended.
        primary.probe().unwrap();
        primary.drain_into(&mut interval);
        for (sum, name) in sums.iter_mut().zip(["grains", "flour", "sacks"]) {
            *sum += interval.delta(name);
        }
        drains += 1;
        saw_gauges |= interval.gauge("speed") == Some(0.5)
            && interval.gauge("warmth").is_some_and(|celsius| celsius > 20.0)
            && interval.gauge("turns").is_some_and(|turns| turns >= 1000.0);
    }
    for mut worker in workers {
        assert_eq!(worker.ended(), Some(0));
    }
    assert_eq!(sums, [150_000, 450_000, 150]);
    assert!(drains > 100, "{drains} drains");
    assert!(saw_gauges);
    let totals = region.inspector().unwrap().totals().clone();
    assert_eq!((totals.get("grains"), totals.get("flour")), (150_000, 450_000));
}

#[test]
fn a_killed_worker_loses_nothing_and_its_slot_is_taken_over() {
    let folder = Folder::new();
    let path = folder.file("mill.shmstats");
    let region = shmstats::Region::create(&path, &schema(), 1).unwrap();
    let mut inspector = region.inspector().unwrap();
    let first = worker(&folder, 0, 0);
    first.wait_for("counting");
    first.kill();
    let before = inspector.totals().get("grains");
    assert!(before > 0);
    let state = |inspector: &mut shmstats::Inspector| inspector.observe().unwrap().states[0];
    assert_eq!(state(&mut inspector), shmstats::SlotState::Dead);
    assert_eq!(inspector.observe().unwrap().gauge("speed"), None);

    let mut second = worker(&folder, 0, 0);
    second.wait_for("counting");
    assert_eq!(state(&mut inspector), shmstats::SlotState::Alive);
    wait_until("more grains", || (inspector.totals().get("grains") > before).then_some(()));
    // A third finds the slot held.
    let mut third = worker(&folder, 0, 1);
    assert_eq!(third.ended(), Some(1));
    second.signal(Signal::SIGTERM);
    assert_eq!(second.ended(), Some(0));
    assert_eq!(state(&mut inspector), shmstats::SlotState::Released);
}

#[test]
fn the_command_runs_it_as_the_readme_says() {
    needs("python3", "python3");
    let folder = Folder::new();
    let example = root().join("examples/foreign");
    let mut command = folder.command(&["run", "-n", "3", "--keep", "--on-exit", "ignore"]);
    command
        .args(["--interval", "20ms", "--schema"])
        .arg(example.join("schema.toml"))
        .args(["--", "python3"])
        .arg(example.join("worker.py"))
        .args(["--grains", "20000"])
        .stderr(Stdio::piped());
    let output = command.output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{log}");
    assert!(log.contains("All 3 servers: grains "), "{log}");
    let name = folder.run(&["ls"]).good();
    let name = name.lines().nth(1).unwrap().split_whitespace().next().unwrap();
    let path = folder.file(name);
    let report = folder.run(&["inspect", "--json", path.to_str().unwrap()]).good();
    let report: Json = serde_json::from_str(&report).unwrap();
    assert_eq!(report["rollups"][0]["name"], "grains");
    assert_eq!(report["rollups"][0]["value"], 60_000);
    assert_eq!(report["servers"]["released"], 3);
    let region = shmstats::Region::open(&path).unwrap();
    assert_eq!(schema().difference(region.schema()), None);
}
