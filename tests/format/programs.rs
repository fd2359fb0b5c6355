//! The two programs printed in docs/format.md, which follow it and nothing else.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use shmstats::{Error, Inspector, Region, SlotState};

use super::golden::{PATH, of_this_boot};
use super::image::{Image, bounded, folder};
use super::{doc, sample};

/// Writes the n-th program of the page; nothing where there is no Python.
fn program(n: usize, folder: &Path) -> Option<PathBuf> {
    if !Command::new("python3").arg("--version").output().is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: no python3 here");
        return None;
    }
    let code = doc::TEXT.split("```python\n").nth(n + 1).and_then(|rest| rest.split("```").next());
    let path = folder.join("program.py");
    std::fs::write(&path, code.expect("docs/format.md has two programs in Python")).unwrap();
    Some(path)
}

#[test]
fn the_reader_reads_the_golden_file() {
    let folder = folder();
    let Some(reader) = program(0, folder.path()) else { return };
    let run = |path: &Path| {
        let output = Command::new("python3").arg(&reader).arg(path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let counters = "golden_requests{model=\"m \"1\"\",status=\"ok\"} 135\n\
                    golden_requests{model=\"m \"1\"\",status=\"error\"} 12\n\
                    golden_sent 12400\n";
    assert_eq!(run(Path::new(PATH)), counters);
    let gauges = "golden_running{engine=\"0\"} 0\n\
                  golden_kv_usage{engine=\"0\"} 0.0\n\
                  golden_running{engine=\"1\"} 9\n\
                  golden_kv_usage{engine=\"1\"} None\n";
    let path = of_this_boot().write(folder.path());
    assert_eq!(run(&path), format!("{counters}{gauges}"));
}

/// A server that has never seen this library claims a slot of a region of an earlier boot.
#[test]
fn the_server_counts_and_is_alive_until_it_gives_its_slot_back() {
    let folder = folder();
    let Some(server) = program(1, folder.path()) else { return };
    let path = Image::golden().write(folder.path());
    let mut child = Command::new("python3")
        .arg(&server)
        .args([path.as_os_str(), "1".as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let line = bounded(move || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        line
    });
    assert_eq!(line, "counted\n");

    let schema = sample::schema();
    let mut inspector = Inspector::open(&path).unwrap();
    let observation = inspector.observe().unwrap();
    assert_eq!(observation.states, [SlotState::Dead, SlotState::Alive]);
    assert!(observation.this_boot && observation.attached);
    assert_eq!(observation.reset_number, 2);
    let owner = observation.owners[1];
    assert_eq!((owner.generation, owner.pid), (8, u64::from(child.id())));
    assert_eq!(owner.server_index, Some(1));
    let gauge = |name, labels: &[_]| {
        let id = schema.find(name, labels).unwrap();
        observation.gauge_of(id)
    };
    assert_eq!(gauge("in_flight", &[]), Some(-2.0));
    assert_eq!(gauge("threads", &[("state", "running")]), Some(12.0));
    assert_eq!(gauge("balance", &[]), Some(-7.0));
    // The last owner's, and another boot's.
    assert_eq!(gauge("workers", &[]), None);
    assert_eq!(gauge("running", &[("engine", "0")]), None);
    assert_eq!(inspector.totals().get("sent"), 12400 + 1000);

    let region = Region::open(&path).unwrap();
    let error = region.claim(1).unwrap_err();
    assert!(matches!(error, Error::Held { by_this_process: false, .. }), "{error:?}");
    assert_eq!(region.primary().unwrap().drain().delta("sent"), 345 + 1000);

    drop(child.stdin.take());
    let status = bounded(move || child.wait().unwrap());
    assert!(status.success());
    assert_eq!(inspector.observe().unwrap().states, [SlotState::Dead, SlotState::Released]);
    region.claim(1).unwrap();
}
