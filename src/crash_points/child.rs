//! The process that dies.

use std::cell::Cell;
use std::path::PathBuf;

use nix::sys::signal::{Signal, raise};

use super::{ACTION, REGION, STEP, schema};
use crate::lease::PATIENCE;
use crate::primary::Primary;
use crate::protocol::{no_hook, snapshot};
use crate::{Region, monotonic_ns};

/// The name that the test harness knows the entry point by.
pub(super) const NAME: &str = "crash_points::child::entry_point_of_the_process_that_dies";

/// Does nothing unless a test of this module has started it: the tests are those that see it die.
#[test]
#[ignore = "entry point of the process that dies"]
fn entry_point_of_the_process_that_dies() {
    let Ok(action) = std::env::var(ACTION) else { return };
    let path: PathBuf = std::env::var_os(REGION).expect("a region").into();
    let last: Option<usize> = std::env::var(STEP).ok().map(|step| step.parse().expect("a number"));
    let seen = Cell::new(0);
    println!(); // Behind what the test harness has begun a line with.
    act(&action, path, &|step| {
        if last.is_none() {
            println!("step: {step}");
        } else if last == Some(seen.get()) {
            // Not `abort`, whose signal can be caught and leaves a core file behind.
            raise(Signal::SIGKILL).expect("a signal to oneself");
        }
        seen.set(seen.get() + 1);
    });
}

fn act(action: &str, path: PathBuf, hook: &dyn Fn(&'static str)) {
    if action == "create" {
        Region::options(2).create_with(&path, &schema(), hook).expect("a region");
        return;
    }
    let region = Region::open(&path).expect("the region");
    match action {
        "remove" => region.remove_with(hook).expect("to be alone"),
        "claim" => {
            region.claim_slot(0, Some(0), PATIENCE, hook).expect("a slot");
        }
        "publish" => publish(&region, "load", hook),
        "publish shared" => publish(&region, "engine", hook),
        "drain" => {
            let mut primary = Primary::take(&region, no_hook).expect("the primary lease");
            let mut interval = primary.interval();
            primary.drain_with(&mut interval, hook);
        }
        "takeover" => drop(Primary::take(&region, hook).expect("the primary lease")),
        "reset" => {
            let mut primary = Primary::take(&region, no_hook).expect("the primary lease");
            primary.reset_with(hook);
        }
        other => panic!("unknown action {other}"),
    }
}

/// Publishes 3 and 4 over whatever was there, through slot 1.
fn publish(region: &Region, name: &str, hook: &dyn Fn(&'static str)) {
    let _server = region.claim(1).expect("a slot");
    let shapes = region.schema().snapshots();
    let shape = shapes.iter().position(|shape| shape.name == name).expect("a snapshot");
    let stamp = snapshot::Stamp {
        sequence: 0,
        reset: region.view().reset_number().load(crate::sync::Ordering::Relaxed),
        time: monotonic_ns(),
        present: 0b11,
    };
    snapshot::publish(region.view().slot(1).snapshot(shape), stamp, &[3, 4], hook);
}
