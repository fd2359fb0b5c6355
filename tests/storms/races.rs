//! Many processes at the same instant: who creates, who removes, who is let in.

use std::fs::File;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use shmstats::{Error, Region, Schema, Server};

use crate::actor::{Actor, Role, heard, say};
use crate::dice::times;
use crate::support::schema;

tests![
    one_creates_and_all_attach,
    a_new_schema_at_the_same_instant,
    claims_never_land_on_a_removed_file,
];

pub(crate) const ROLES: &[Role] =
    &[("starter", starter), ("claimer", claimer), ("launcher", launcher), ("remover", remover)];

const STARTERS: u32 = 64;

/// The schema of the test, or the one that the next version of a program has.
fn schema_of(version: &str) -> Schema {
    match version {
        "new" => Schema::builder("test").counter("prompt").counter("added").build().expect("one"),
        _ => schema(),
    }
}

/// A folder in memory that goes with the test.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a folder in /dev/shm")
}

/// At each line, `PATH GATE VERSION`: waits at the gate, opens or creates the region, claims a
/// slot and counts one. Keeps the slot until the next line.
fn starter(_: &[String]) {
    let mut server: Option<Server> = None;
    while let Some(line) = heard() {
        drop(server.take());
        let words: Vec<&str> = line.split(' ').collect();
        let [path, gate, version] = words[..] else { panic!("{line}") };
        let schema = schema_of(version);
        let gate = File::open(gate).expect("the gate");
        say("ready");
        let gate = Flock::lock(gate, FlockArg::LockShared).expect("the gate to open");
        drop(gate);
        let joined = Region::options(STARTERS)
            .open_or_create(path, &schema)
            .and_then(|region| region.claim_any())
            .inspect(|server| server.counter("prompt").expect("a counter").inc());
        match joined {
            Ok(joined) => {
                say("ok");
                server = Some(joined);
            }
            Err(error) => say(error),
        }
    }
}

/// Lets all starters go at once on a path; every one must get in.
fn start_all(starters: &mut [Actor], path: &Path, version: &str) {
    let gate: PathBuf = path.with_extension("gate");
    let closed = File::create(&gate).expect("a gate");
    let closed = Flock::lock(closed, FlockArg::LockExclusive).expect("a closed gate");
    let line = format!("{} {} {version}", path.display(), gate.display());
    starters.iter_mut().for_each(|starter| starter.send(&line));
    starters.iter_mut().for_each(|starter| assert_eq!(starter.answer(), "ready"));
    drop(closed);
    let answers: Vec<String> = starters.iter_mut().map(Actor::answer).collect();
    let refused: Vec<&String> = answers.iter().filter(|answer| *answer != "ok").collect();
    assert!(refused.is_empty(), "{} of {} refused: {}", refused.len(), answers.len(), refused[0]);
}

/// All of them count in the one file that has the name, so one created it and no more.
fn one_creates_and_all_attach() {
    let (folder, rounds) = (folder(), times(200));
    let mut starters: Vec<_> = (0..STARTERS).map(|_| Actor::start("starter", &[])).collect();
    for round in 0..rounds {
        let path = folder.path().join(format!("{round}.shmstats"));
        start_all(&mut starters, &path, "old");
        let region = Region::open(&path).expect("the region");
        let mut inspector = region.inspector().expect("an inspector");
        assert_eq!(inspector.totals().get("prompt"), u64::from(STARTERS));
        let observation = inspector.observe().expect("an observation");
        assert_eq!((observation.reset_number, observation.refused_servers), (0, 0));
        std::fs::remove_file(&path).expect("the file");
    }
    println!("{STARTERS} processes started at once, {rounds} times: one region, none refused");
    let left = std::fs::read_dir(folder.path()).expect("the folder");
    let left = left.filter(|entry| {
        let name = entry.as_ref().expect("an entry").file_name();
        !name.to_string_lossy().ends_with(".gate")
    });
    assert_eq!(left.count(), 0, "files left behind");
}

/// A deploy: everyone has a new schema, and there is a region of the old one that nobody uses.
fn a_new_schema_at_the_same_instant() {
    let (folder, rounds) = (folder(), times(20));
    let mut starters: Vec<_> = (0..8).map(|_| Actor::start("starter", &[])).collect();
    for round in 0..rounds {
        let path = folder.path().join(format!("{round}.shmstats"));
        drop(Region::create(&path, &schema_of("old"), STARTERS).expect("an old region"));
        start_all(&mut starters, &path, "new");
        let mut inspector = shmstats::Inspector::open(&path).expect("an inspector");
        assert_eq!(inspector.totals().get("prompt"), 8);
    }
    println!("8 processes with a new schema at once, {rounds} times: one new region, all in it");
}

/// Path, number of claims.
fn claimer(arguments: &[String]) {
    let (path, claims): (_, u32) = (&arguments[0], arguments[1].parse().expect("a number"));
    let schema = schema();
    for claim in 0..claims {
        let region = match claim % 2 {
            0 => Region::options(STARTERS).open_or_create(path, &schema).expect("a region"),
            _ => match Region::open(path) {
                Ok(region) => region,
                // Removed, and not created again yet.
                Err(error) if error.io_kind() == Some(std::io::ErrorKind::NotFound) => continue,
                Err(error) => panic!("refused wrongly: {error}"),
            },
        };
        let server = region.claim_any().expect("one of many slots");
        server.counter("prompt").expect("a counter").inc();
        assert!(!region.is_removed(), "claim {claim} landed on a removed file");
    }
    say("ok");
}

/// Creates a region, and claims nothing: a launch that is under way is not to be collected.
fn launcher(arguments: &[String]) {
    let (path, launches): (_, u32) = (&arguments[0], arguments[1].parse().expect("a number"));
    for _ in 0..launches {
        match Region::create(path, &schema(), STARTERS) {
            Ok(region) => {
                for _ in 0..100 {
                    assert!(!region.is_removed(), "collected before anyone claimed");
                    std::thread::yield_now();
                }
            }
            Err(Error::AlreadyExists { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    say("ok");
}

/// Removes whatever nobody is attached to, as a collector does, until it is killed.
fn remover(arguments: &[String]) {
    loop {
        let removed = Region::open(&arguments[0]).and_then(Region::remove);
        let harmless = match &removed {
            Ok(()) | Err(Error::Held { .. } | Error::Removed { .. }) => true,
            Err(error) => error.io_kind() == Some(std::io::ErrorKind::NotFound),
        };
        assert!(harmless, "{removed:?}");
    }
}

fn claims_never_land_on_a_removed_file() {
    const CLAIMERS: u32 = 4;
    let (folder, claims) = (folder(), times(40_000) / CLAIMERS);
    let path = folder.path().join("race.shmstats");
    let number = claims.to_string();
    let mut claimers: Vec<_> =
        (0..CLAIMERS).map(|_| Actor::start("claimer", &[&path, &number])).collect();
    claimers.push(Actor::start("launcher", &[&path, &(claims / 10).to_string()]));
    let remover = Actor::start("remover", &[&path]);
    for claimer in &mut claimers {
        assert_eq!(claimer.answer(), "ok");
    }
    remover.kill();
    println!("{} claims beside a remover: none on a removed file, none refused", claims * CLAIMERS);
}
