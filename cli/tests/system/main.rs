//! Tests that need programs of the system: python3, tmux, prometheus, promtool and bindfs. They fail, and
//! say what to install, where one is missing; so they are behind a feature:
//! `cargo test -p shmstats-cli --features system-tests`.

#[path = "../cli/support.rs"]
#[allow(dead_code)]
mod support;

mod docs;
mod foreign;
mod fuse;
mod main_job;
mod prometheus;
mod terminal;

use std::process::{Command, Stdio};

/// A program, or a failure that says how to get it.
#[track_caller]
fn needs(program: &str, package: &str) -> Command {
    let there = Command::new("sh")
        .args(["-c", "command -v \"$0\"", program])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    assert!(
        there,
        "this test needs {program}: install it, on Debian with `apt-get install {package}`"
    );
    Command::new(program)
}

/// The repository.
fn root() -> &'static std::path::Path {
    std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
