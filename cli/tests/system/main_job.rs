//! Every command on the region of the main job, `examples/api_servers`, while it runs and after all
//! of its processes were killed.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value as Json;

use crate::root;
use crate::support::{Exporter, Folder, Process, sample, wait_until};

/// The example's program, built if need be.
fn example() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "shmstats", "--example", "api_servers"])
        .current_dir(root())
        .status()
        .unwrap();
    assert!(built.success());
    let command = Path::new(env!("CARGO_BIN_EXE_shmstats"));
    command.parent().unwrap().join("examples/api_servers")
}

fn commands(folder: &Folder, path: &str, live: bool) -> Json {
    let state = if live { "live" } else { "dead" };
    let ls = folder.run(&["ls"]).good();
    assert!(ls.lines().nth(1).unwrap().contains(state), "{ls}");
    let check = folder.run(&["check", path]).good();
    assert!(check.contains(": good: version 1"), "{check}");
    let text = folder.run(&["inspect", path]).good();
    assert!(text.contains("engine{engine=\"0\"}") && text.contains("generation_tokens"), "{text}");
    let top = folder.run(&["top", path, "--refresh", "200ms"]).good();
    let servers = if live { "4/4 servers" } else { "0/4 servers" };
    assert!(top.contains(servers) && top.contains("genera_token/s"), "{top}");
    assert_eq!(top.contains("dead: nobody is attached"), !live, "{top}");
    let log = folder.run(&["log", path, "--interval", "200ms", "--count", "1"]).good();
    assert!(log.starts_with("All 4 API Servers"), "{log}");
    assert_eq!(log.contains("(4 dead)"), !live, "{log}");
    assert!(live || log.contains("Running: 0 reqs"), "{log}");
    let metrics = folder.run(&["export", path, "--once"]).good();
    assert!(sample(&metrics, "llm_generation_tokens_total{server=\"0\"}").is_some_and(|n| n > 0.0));
    assert_eq!(metrics.contains("llm_requests_running{engine=\"0\"}"), live, "{metrics}");
    let gc = folder.run(&["gc"]).good();
    assert!(gc.starts_with("kept "), "{gc}");
    serde_json::from_str(&folder.run(&["inspect", path, "--json"]).good()).unwrap()
}

#[test]
fn all_commands_on_the_main_job_live_and_killed() {
    let folder = Folder::new();
    let mut job = Command::new(example());
    job.args(["--duration", "0", "--interval", "300ms", "--port", "0", "--engines", "2"])
        .env("SHMSTATS_DIR", folder.path())
        .stderr(std::process::Stdio::null());
    let job = Process::start(&mut job);
    let path = wait_until("a region with tokens in it", || {
        let ran = folder.run(&["inspect", "--json"]);
        let report: Json = serde_json::from_str(&ran.out).ok()?;
        let servers = report["servers"]["alive"] == 4;
        let tokens = report["rollups"][2]["value"].as_u64()? > 1000;
        let told = report["shared"].as_array()?.iter().all(|shared| shared["slot"].is_u64());
        (servers && tokens && told).then(|| report["path"].as_str().unwrap().to_string())
    });
    let exporter = Exporter::start(&folder, &[]);
    let live = commands(&folder, &path, true);
    assert_eq!(live["primary"]["alive"], true);
    assert!(exporter.metrics().contains("llm_requests_running{engine=\"1\""));

    // The launcher would stop the others in order; stopped, it cannot.
    job.signal(Signal::SIGSTOP);
    for slot in live["slots"].as_array().unwrap().iter().filter(|slot| slot["state"] == "alive") {
        let pid = i32::try_from(slot["pid"].as_u64().unwrap()).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    job.kill();
    wait_until("the end of all", || {
        let ran = folder.run(&["inspect", "--json", &path]);
        let report: Json = serde_json::from_str(&ran.out).ok()?;
        (report["region"]["live"] == false).then_some(())
    });
    let dead = commands(&folder, &path, false);
    assert_eq!(dead["servers"]["dead"], 4);
    assert_eq!(dead["primary"]["alive"], false);
    assert_eq!(dead["health"]["settled"], true);
    for (before, after) in
        live["counters"].as_array().unwrap().iter().zip(dead["counters"].as_array().unwrap())
    {
        assert!(after["total"].as_u64() >= before["total"].as_u64(), "{before} {after}");
    }
    assert!(exporter.metrics().contains("shmstats_servers{state=\"dead\""));
    let gc = folder.run(&["gc", "--all"]).good();
    assert!(gc.starts_with("removed "), "{gc}");
    assert!(!Path::new(&path).exists());
}
