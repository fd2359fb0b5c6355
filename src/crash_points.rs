//! Tests that put a real process's death at each step of each protocol.
//!
//! A storm of kills is nearly blind to rare states. So every step has a hook, and here a process
//! is started for each of them that kills itself there. The test that started it then looks at
//! totals and snapshots, takes over what the dead one held, and looks again.
//!
//! Which steps there are is not written down here: a first process goes through all of them and
//! says their names. A step that no process died at is a failure.

mod child;
mod counters;
mod slots;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::schema::{CounterDef, GaugeDef, Lifetime, Schema, SnapshotDef};
use crate::{Inspector, Region};

/// Set for a child: what to do, at which step to die, and where the region is.
const ACTION: &str = "SHMSTATS_CRASH_ACTION";
const STEP: &str = "SHMSTATS_CRASH_STEP";
const REGION: &str = "SHMSTATS_CRASH_REGION";

fn schema() -> Schema {
    Schema::builder("crash")
        .counter("first")
        .counter("second")
        .counter(CounterDef::new("single").single_writer())
        .gauge(GaugeDef::i64("own"))
        .gauge(GaugeDef::u64("kept").lifetime(Lifetime::Region))
        .snapshot(SnapshotDef::new("load").gauge(GaugeDef::u64("a")).gauge(GaugeDef::u64("b")))
        .snapshot(
            SnapshotDef::new("engine")
                .shared()
                .label("engine", "0")
                .gauge(GaugeDef::u64("x"))
                .gauge(GaugeDef::u64("y")),
        )
        .build()
        .expect("a valid schema")
}

/// A region in a folder of its own.
struct Place {
    region: Region,
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = folder();
        let region = Region::create(path_in(&folder), &schema(), 2).expect("a region");
        Place { region, folder }
    }

    fn path(&self) -> PathBuf {
        path_in(&self.folder)
    }

    fn inspector(&self) -> Inspector {
        Inspector::open(self.path()).expect("an inspector")
    }
}

fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a folder in /dev/shm")
}

fn path_in(folder: &TempDir) -> PathBuf {
    folder.path().join("crash.shmstats")
}

/// A process that does `action` on the region.
fn command(action: &str, region: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program's path"));
    command
        .args(["--exact", child::NAME, "--ignored", "--nocapture", "--test-threads=1"])
        .env(ACTION, action)
        .env(REGION, region);
    command
}

/// The steps that `action` goes through, in order.
fn steps_of(action: &str, region: &Path) -> Vec<String> {
    let output = command(action, region).output().expect("a child");
    assert!(output.status.success(), "{action}: {output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let steps: Vec<String> =
        text.lines().filter_map(|line| line.strip_prefix("step: ")).map(String::from).collect();
    assert!(!steps.is_empty(), "{action} has no steps: {text}");
    steps
}

/// Lets a process do `action` and die at the n-th of its steps.
fn die_at(action: &str, region: &Path, n: usize) {
    assert!(dies_at(action, region, n), "{action} has no step {n}");
}

/// As [`die_at`], where there may be fewer steps. Whether it died.
fn dies_at(action: &str, region: &Path, n: usize) -> bool {
    let output = command(action, region).env(STEP, n.to_string()).output().expect("a child");
    let killed = output.status.signal() == Some(nix::sys::signal::Signal::SIGKILL as i32);
    assert!(killed || output.status.success(), "{action} failed at step {n}: {output:?}");
    killed
}
