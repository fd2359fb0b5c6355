//! What can go wrong, done to real processes: killed at any instant, stopped, forked, in two
//! containers, with no room, on a scribbled region, after a reboot.
//!
//! Started with a role, this binary is one of the processes of a test; else it runs the tests. The
//! short version runs with all others; `docs/failures.md` says how the long ones are run and what
//! they printed.

/// Lists tests by their functions' names.
macro_rules! tests {
    ($($test:ident),* $(,)?) => {
        pub(crate) const TESTS: &[(&str, fn())] = &[$((stringify!($test), $test as fn())),*];
    };
}

mod ack;
mod actor;
mod containers;
mod dice;
mod forks;
mod kills;
mod locks;
mod namespaces;
mod primary_kills;
mod races;
mod reboot;
mod rolling;
mod room;
mod sandbox;
mod scribbled;
mod stopped;
#[allow(dead_code, reason = "shared with tests/processes, which uses the rest")]
#[path = "../processes/support.rs"]
mod support;
#[allow(dead_code, reason = "shared with tests/processes, which uses the rest")]
#[path = "../processes/worker.rs"]
mod worker;

use std::sync::mpsc;
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// No test of the short version takes longer, on a machine that does other things besides.
const LIMIT: Duration = Duration::from_secs(300);

/// What a user must be allowed to do for a module's tests.
#[derive(Clone, Copy)]
enum Needs {
    Nothing,
    Namespaces,
    Root,
}

const ROLES: &[&[actor::Role]] = &[
    containers::ROLES,
    forks::ROLES,
    kills::ROLES,
    locks::ROLES,
    primary_kills::ROLES,
    races::ROLES,
    reboot::ROLES,
    rolling::ROLES,
    room::ROLES,
    sandbox::ROLES,
    scribbled::ROLES,
];

type Module = (&'static str, Needs, &'static [(&'static str, fn())]);

const MODULES: &[Module] = &[
    ("containers", Needs::Namespaces, containers::TESTS),
    ("containers", Needs::Root, containers::as_root::TESTS),
    ("forks", Needs::Nothing, forks::TESTS),
    ("kills", Needs::Nothing, kills::TESTS),
    ("locks", Needs::Nothing, locks::TESTS),
    ("primary_kills", Needs::Nothing, primary_kills::TESTS),
    ("races", Needs::Nothing, races::TESTS),
    ("reboot", Needs::Nothing, reboot::TESTS),
    ("reboot", Needs::Root, reboot::as_root::TESTS),
    ("rolling", Needs::Nothing, rolling::TESTS),
    ("room", Needs::Nothing, room::TESTS),
    ("room", Needs::Namespaces, room::mounted::TESTS),
    ("room", Needs::Root, room::as_root::TESTS),
    ("sandbox", Needs::Nothing, sandbox::TESTS),
    ("sandbox", Needs::Namespaces, sandbox::mounted::TESTS),
    ("scribbled", Needs::Nothing, scribbled::TESTS),
    ("stopped", Needs::Nothing, stopped::TESTS),
];

fn main() {
    actor::die_with_parent();
    if let Ok(path) = std::env::var(worker::ROLE) {
        return worker::run(std::path::Path::new(&path));
    }
    if actor::run(ROLES) {
        return;
    }
    let mut trials: Vec<Trial> = Vec::new();
    for &(module, needs, tests) in MODULES {
        for &(name, test) in tests {
            let name = format!("{module}::{name}");
            trials.push(Trial::ignorable_test(name, move || match lacking(needs) {
                Some(reason) => Ok(Completion::ignored_with(reason)),
                None => in_time(test).map(|()| Completion::Completed),
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Why a test cannot be run here, if it cannot.
fn lacking(needs: Needs) -> Option<&'static str> {
    match needs {
        Needs::Namespaces if !namespaces::has_namespaces() => {
            Some("needs namespaces: root, or a system where users may unshare")
        }
        Needs::Root if !namespaces::is_root() => Some("needs root"),
        _ => None,
    }
}

/// Runs a test on a thread of its own, so that one that hangs is a failure and not a silence.
fn in_time(test: fn()) -> Result<(), Failed> {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    // The long versions take as long as they were asked to.
    let limit = if dice::is_long() { 12 * LIMIT } else { LIMIT };
    if let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(limit) {
        return Err(format!("still running after {limit:?}").into());
    }
    thread.join().map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        Failed::from(text.unwrap_or_else(|| "the test panicked".into()))
    })
}
