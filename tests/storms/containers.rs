//! One region seen from two containers, by other users, through a read-only mount, and after
//! privileges were dropped.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use shmstats::{Error, Inspector, Region, SlotState, StatLogger};

use crate::actor::{Actor, Role, command, heard, say};
use crate::namespaces::{self, bind_read_only, said};
use crate::support::{Place, until};

tests![two_pid_namespaces, a_read_only_mount];

/// Those that need a user who may become another.
pub(crate) mod as_root {
    use super::*;
    tests![readers_of_other_users, privileges_dropped_after_the_claim];
}

pub(crate) const ROLES: &[Role] = &[
    ("contained", contained),
    ("mounted", mounted),
    ("other_user", other_user),
    ("dropper", dropper),
];

/// A user that owns nothing here.
const NOBODY: u32 = 65534;
const GROUP: u32 = 54321;

fn states(inspector: &mut Inspector) -> Vec<SlotState> {
    inspector.observe().expect("an observation").states
}

fn contained(arguments: &[String]) {
    let region = Region::open(&arguments[0]).expect("the region");
    let server = region.claim_any().expect("a slot");
    let counter = server.counter("prompt").expect("a counter");
    let mut inspector = region.inspector().expect("an inspector");
    say(std::process::id());
    while let Some(line) = heard() {
        match line.as_str() {
            "add" => {
                (0..100_000).for_each(|_| counter.inc());
                say("ok");
            }
            "look" => {
                let states = states(&mut inspector);
                say(states.iter().filter(|state| **state == SlotState::Alive).count());
            }
            other => panic!("{other}"),
        }
    }
}

/// Both are pid 1 where they live: a lease does not go by pids.
fn two_pid_namespaces() {
    let place = Place::new(2);
    let options = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    let start = || {
        let mut actor = Actor::spawn(namespaces::command(&options, "contained", &[&place.path()]));
        assert_eq!(actor.answer(), "1", "the first process of its namespace");
        actor
    };
    let (mut first, mut second) = (start(), start());
    assert_eq!((first.ask("look"), second.ask("look")), ("2".into(), "2".into()));
    let mut inspector = Inspector::open(place.path()).expect("an inspector");
    let owners = inspector.observe().expect("an observation").owners;
    assert_eq!(owners.iter().filter(|owner| owner.pid == 1).count(), 2);
    first.send("add");
    second.send("add");
    let mut primary = place.primary();
    let mut drained = primary.drain().delta("prompt");
    assert_eq!((first.answer(), second.answer()), ("ok".into(), "ok".into()));
    drained += primary.drain().delta("prompt");
    assert_eq!((drained, inspector.totals().get("prompt")), (200_000, 200_000));
    first.kill();
    until("the second to see the first one's end", || second.ask("look") == "1");
    assert!(second.end().success());
}

/// Region, mount point.
fn mounted(arguments: &[String]) {
    let (path, place) = (Path::new(&arguments[0]), Path::new(&arguments[1]));
    let folder = path.parent().expect("a folder");
    bind_read_only(folder, place);
    let seen = place.join(path.file_name().expect("a name"));
    let mut inspector = Inspector::open(&seen).expect("a reader needs permission to read only");
    assert_eq!(inspector.totals().get("prompt"), 12);
    assert_eq!(states(&mut inspector)[0], SlotState::Alive);
    assert!(inspector.is_at_its_path());
    let refused = Region::open(&seen).expect_err("a writer on a read-only mount");
    say(refused);
}

fn a_read_only_mount() {
    let place = Place::new(1);
    let server = place.region.claim(0).expect("a slot");
    server.counter("prompt").expect("a counter").add(12);
    let point = tempfile::tempdir().expect("a folder");
    let refused = namespaces::output("mounted", &[&place.path(), &point.path()]);
    assert!(refused.contains("Read-only file system"), "{refused}");
}

fn become_user(uid: u32, gid: u32) {
    setgroups(&[]).expect("no more groups");
    setgid(Gid::from_raw(gid)).expect("another group");
    setuid(Uid::from_raw(uid)).expect("another user");
}

/// Region, group: looks at the region as another user, then tries to write.
fn other_user(arguments: &[String]) {
    become_user(NOBODY, arguments[1].parse().expect("a group"));
    match Inspector::open(&arguments[0]) {
        Ok(mut inspector) => {
            let total = inspector.totals().get("prompt");
            let observation = inspector.observe().expect("who is alive");
            assert_eq!(observation.states[0], SlotState::Alive);
            assert!(observation.attached);
            say(format!("total {total}"));
        }
        Err(error) => say(error),
    }
    match Region::open(&arguments[0]) {
        Ok(region) => say(format!("opened {}", region.claim_any().expect("a slot").slot())),
        Err(error) => say(error),
    }
}

fn readers_of_other_users() {
    let place = Place::new(1);
    let folder: PathBuf = place.path().parent().expect("a folder").into();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).expect("a mode");
    std::os::unix::fs::chown(place.path(), None, Some(GROUP)).expect("another group");
    let server = place.region.claim(0).expect("a slot");
    server.counter("prompt").expect("a counter").add(9);
    let look = |mode: u32, group: u32| {
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(mode)).expect("a mode");
        let arguments: [&dyn AsRef<std::ffi::OsStr>; 2] = [&place.path(), &group.to_string()];
        said(command("other_user", &arguments).output().expect("a process"))
    };
    let answer = look(0o640, GROUP);
    assert!(answer.starts_with("total 9\n"), "{answer}");
    for (mode, group) in [(0o640, NOBODY), (0o600, GROUP)] {
        let answer = look(mode, group);
        for part in
            ["permission denied", "uid 65534", "belongs to uid 0", "gid 54321", "SHMSTATS_MODE"]
        {
            assert!(answer.contains(part), "no {part} in {answer}");
        }
        assert!(answer.contains(&format!("{mode:04o}")), "{answer}");
    }
    // Root's file can be written to by whom root lets; that of a third user cannot, whatever its
    // mode says: they could mislead who writes there.
    assert_eq!(look(0o666, GROUP), "total 9\nopened 1\n");
    std::os::unix::fs::chown(place.path(), Some(NOBODY + 1), None).expect("another owner");
    let answer = look(0o666, GROUP);
    assert!(answer.contains("refusing to write"), "{answer}");
}

/// Region: claims as root, then goes on as nobody.
fn dropper(arguments: &[String]) {
    let region = Region::open(&arguments[0]).expect("the region");
    let server = region.claim(0).expect("a slot");
    let counter = server.counter("prompt").expect("a counter");
    let mut load = server.snapshot("load", &[]).expect("a snapshot");
    let running = load.field::<u64>("load_running").expect("a field");
    become_user(NOBODY, NOBODY);
    counter.add(3);
    load.set(running, 6);
    load.publish();
    let mut primary = region.primary().expect("the primary lease, with the descriptor it has");
    primary.probe().expect("who is alive");
    let interval = primary.drain();
    assert_eq!((interval.delta("prompt"), interval.gauge("load_running")), (3, Some(6.0)));
    drop(primary);
    let mut logger = StatLogger::builder(&server).build();
    counter.add(4);
    logger.tick();
    assert!(logger.is_primary());
    assert!(!region.is_removed());
    // A second slot would need the file to be opened again.
    match region.claim(1) {
        Err(Error::Io { .. } | Error::PermissionDenied { .. }) => say("refused"),
        other => panic!("{other:?}"),
    }
    counter.add(5);
}

fn privileges_dropped_after_the_claim() {
    let place = Place::new(1);
    let output = command("dropper", &[&place.path()]).output().expect("a process");
    assert_eq!(said(output), "refused\n");
    let mut inspector = Inspector::open(place.path()).expect("an inspector");
    assert_eq!(inspector.totals().get("prompt"), 12);
    assert_eq!(states(&mut inspector)[0], SlotState::Released);
    drop(place.region.claim(0).expect("a slot that was given back"));
}
