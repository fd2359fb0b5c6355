//! `run`: any program, N times, one region, one line.

use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::support::{Folder, Process, write};

const SCHEMA: &str = r#"
namespace = "shop"
[[counter]]
name = "orders"
single_writer = true
"#;

#[test]
fn processes_find_the_region_and_the_line_is_logged_at_the_end() {
    let folder = Folder::new();
    write(&folder.file("shop.toml"), SCHEMA.as_bytes());
    let schema = folder.file("shop.toml");
    let script =
        "test -e \"$SHMSTATS_REGION\" && echo \"$SHMSTATS_SERVER_INDEX of $SHMSTATS_SERVER_COUNT\"";
    let ran = folder.run(&[
        "run",
        "-n",
        "3",
        "--keep",
        "--schema",
        schema.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let mut lines: Vec<_> = ran.out.lines().collect();
    lines.sort();
    // The first to end stops the others, which may be before they have begun.
    assert!(lines.iter().all(|line| line.ends_with(" of 3")) && !lines.is_empty(), "{lines:?}");
    let ls = folder.run(&["ls"]).good();
    assert!(ls.lines().nth(1).unwrap().starts_with("sh-"), "{ls}");
}

#[test]
fn a_process_that_fails_stops_the_others_and_is_named() {
    let folder = Folder::new();
    let script = "if [ $SHMSTATS_SERVER_INDEX = 1 ]; then exit 3; else exec sleep 1000; fi";
    let ran = folder.run(&["run", "-n", "2", "--llm", "--", "sh", "-c", script]);
    let said = ran.failed(1);
    assert!(said.starts_with("server 1 (pid ") && said.ends_with("exited with status 3"), "{said}");
    assert!(folder.run(&["ls"]).good().starts_with("no region in"), "removed at the end");
}

#[test]
fn a_program_that_is_not_there() {
    let folder = Folder::new();
    let said = folder.run(&["run", "-n", "2", "--llm", "--", "/nonexistent/server"]).failed(1);
    assert!(said.starts_with("cannot start /nonexistent/server: "), "{said}");
    assert!(folder.run(&["ls"]).good().starts_with("no region in"), "and nothing is left");
}

#[test]
fn a_schema_file_that_is_wrong() {
    let folder = Folder::new();
    write(&folder.file("bad.toml"), b"namespace = \"n\"\n[[counter]]\nnam = \"x\"\n");
    let path = folder.file("bad.toml");
    let said = folder.run(&["run", "-n", "1", "--schema", path.to_str().unwrap(), "--", "true"]);
    let said = said.failed(1);
    assert!(said.contains("bad.toml: line 3: unknown field `nam`"), "{said}");
    let said = folder.run(&["run", "-n", "1", "--schema", "/nonexistent", "--", "true"]).failed(1);
    assert!(said.starts_with("/nonexistent: cannot read: "), "{said}");
}

#[test]
fn told_to_end_it_ends_all_in_order() {
    let folder = Folder::new();
    let mut command = folder.command(&["run", "-n", "2", "--llm", "--interval", "20ms", "--"]);
    command.args(["sh", "-c", "echo started; exec sleep 1000"]).stderr(Stdio::piped());
    let mut launcher = Process::start(&mut command);
    launcher.wait_for("started");
    launcher.wait_for("started");
    let log = folder.run(&["log", "--interval", "20ms", "--count", "1"]).good();
    assert!(log.starts_with("All 2 API Servers: "), "{log}");
    launcher.signal(Signal::SIGTERM);
    assert_eq!(launcher.ended(), Some(0));
    let mut logged = String::new();
    let mut err = launcher.child.stderr.take().unwrap();
    std::io::Read::read_to_string(&mut err, &mut logged).unwrap();
    assert!(logged.contains("All 2 API Servers: Avg prompt throughput: 0.0 tokens/s"), "{logged}");
    assert!(folder.run(&["ls"]).good().starts_with("no region in"), "removed at the end");
}
