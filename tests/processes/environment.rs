//! Servers that find their region through the environment, and those that do not.

use std::process::{Command, Stdio};

use crate::support::{Place, schema};
use crate::worker::ROLE;

tests![a_server_finds_its_slot, a_server_without_a_region, a_server_with_a_wrong_region];

/// Starts this binary as a server from the environment alone; returns what it prints: its slot,
/// or that it is private, and then its warnings.
fn server(variables: &[(&str, &str)]) -> (String, String) {
    let output = Command::new(std::env::current_exe().expect("this program's path"))
        .env_remove("SHMSTATS_REGION")
        .env_remove("SHMSTATS_SERVER_INDEX")
        .env(ROLE, "from_env")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("a server");
    assert!(output.status.success(), "a server must never fail to start: {output:?}");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (text(output.stdout).trim().into(), text(output.stderr))
}

/// What `server` starts.
pub(crate) fn run() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let server = shmstats::Server::from_env(&schema());
    server.counter("prompt").expect("a counter").add(3);
    match server.region().is_private() {
        true => println!("private"),
        false => println!("slot {} index {:?}", server.slot(), server.index()),
    }
}

fn a_server_finds_its_slot() {
    let place = Place::new(2);
    let path = place.path();
    let path = path.to_str().expect("UTF-8");
    let (said, warned) = server(&[("SHMSTATS_REGION", path), ("SHMSTATS_SERVER_INDEX", "1")]);
    assert_eq!((said.as_str(), warned.as_str()), ("slot 1 index Some(1)", ""));
    let held = place.region.claim(1).expect("a slot");
    let (said, _) = server(&[("SHMSTATS_REGION", path), ("SHMSTATS_SERVER_INDEX", "1")]);
    assert_eq!(said, "slot 2 index Some(1)", "falls back to a spare slot");
    drop(held);
    let (said, _) = server(&[("SHMSTATS_REGION", path)]);
    assert_eq!(said, "slot 2 index None", "no index: any slot, the spare ones first");
    assert_eq!(place.primary().drain().delta("prompt"), 9);
}

fn a_server_without_a_region() {
    let (said, warned) = server(&[]);
    assert_eq!(said, "private");
    assert_eq!(warned.matches("WARN").count(), 1, "{warned}");
    assert!(warned.contains("SHMSTATS_REGION"), "says what is missing: {warned}");
}

fn a_server_with_a_wrong_region() {
    let place = Place::new(1);
    let path = place.path().with_extension("gone");
    let (said, warned) = server(&[("SHMSTATS_REGION", path.to_str().expect("UTF-8"))]);
    assert_eq!((said.as_str(), warned.matches("WARN").count()), ("private", 1), "{warned}");
    let path = place.path();
    let path = path.to_str().expect("UTF-8");
    let (said, warned) = server(&[("SHMSTATS_REGION", path), ("SHMSTATS_SERVER_INDEX", "one")]);
    assert_eq!((said.as_str(), warned.matches("WARN").count()), ("private", 1), "{warned}");
    assert!(warned.contains("SHMSTATS_SERVER_INDEX") && warned.contains("one"), "{warned}");
}
