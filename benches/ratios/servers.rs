//! Many short-lived servers in few slots: nothing grows, nothing is lost.

use std::path::Path;
use std::process::Command;

use shmstats::prometheus::Format;
use shmstats::{Inspector, Region};

use crate::harness::{Case, ratio, sample};
use crate::report::Row;
use crate::setting::{Setting, counters};

/// The first argument of a process that is such a server.
pub(crate) const ARGUMENT: &str = "--short-lived-server";
const SLOTS: u32 = 4;
const EACH: u64 = 7;
/// As good as before.
const NEAR: std::ops::RangeInclusive<f64> = 0.9..=1.1;

/// What a short-lived server does: claim, count, and go. Every second one does not say good-bye.
pub(crate) fn live(path: &Path, slot: u32, number: u32) {
    let region = Region::open(path).expect("the bench made it");
    let server = region.claim(slot).expect("the one before is gone");
    server.counter("c0").expect("declared").add(EACH);
    if number % 2 == 1 {
        // SAFETY: ends the process at once; nothing runs after it.
        unsafe { nix::libc::_exit(0) };
    }
}

/// Has so many servers come and go; returns their region.
fn run(setting: &Setting, name: &str, servers: u32) -> Region {
    let path = setting.path(name);
    let region = Region::options(SLOTS).slots(SLOTS).create(&path, &counters(20)).expect("room");
    let program = std::env::current_exe().expect("the bench itself");
    std::thread::scope(|scope| {
        for slot in 0..SLOTS {
            let (path, program) = (&path, &program);
            scope.spawn(move || {
                for number in (slot..servers).step_by(SLOTS as usize) {
                    let status = Command::new(program)
                        .arg(ARGUMENT)
                        .arg(path)
                        .args([slot.to_string(), number.to_string()])
                        .status()
                        .expect("a process");
                    assert!(number % 2 == 1 || status.success(), "server {number}: {status}");
                }
            });
        }
    });
    region
}

/// The cases.
pub(crate) fn come_and_go(setting: &Setting) -> Vec<Row> {
    let (few, many) = (10, if setting.quick { 200 } else { 5_000 });
    let (young, old) = (run(setting, "young", few), run(setting, "old", many));
    let size = |region: &Region| std::fs::metadata(region.path()).expect("it exists").len();
    let inspect = |region: &Region| Inspector::open(region.path()).expect("a region");
    let (mut young_eye, mut old_eye) = (inspect(&young), inspect(&old));
    let sums = (young_eye.totals().get("c0"), old_eye.totals().get("c0"));
    let expected = (u64::from(few) * EACH, u64::from(many) * EACH);
    let sizes = (size(&young), size(&old));

    let (mut p, mut q) = (young.primary().expect("free"), old.primary().expect("free"));
    let (mut i, mut j) = (p.interval(), q.interval());
    let (mut text, mut text_too) = (Vec::new(), Vec::new());
    let scrape = |eye: &mut Inspector, text: &mut Vec<u8>| {
        text.clear();
        eye.encode(Format::Text, text).expect("the kernel tells");
    };
    let mut cases = [
        Case::new("drain, young", || p.drain_into(&mut i)),
        Case::new("drain, old", || q.drain_into(&mut j)),
        Case::new("scrape, young", || scrape(&mut young_eye, &mut text)),
        Case::new("scrape, old", || scrape(&mut old_eye, &mut text_too)),
    ];
    let series = sample(&mut cases, setting.time / 2);
    let drain = ratio(&series[1], &[&series[0]]).median;
    let scrape = ratio(&series[3], &[&series[2]]).median;
    let group = "short-lived servers";
    let what = format!("after {many} to after {few}");
    let times = |of: &str, ratio: f64| {
        Row::fact(
            group,
            &format!("{of}: within 10 %"),
            NEAR.contains(&ratio),
            format!("{ratio:.3}, {what}"),
        )
    };
    vec![
        Row::fact(
            group,
            "sums are exact",
            sums == expected,
            format!("{} of {}", sums.1, expected.1),
        ),
        Row::fact(
            group,
            "the file does not grow",
            sizes.0 == sizes.1,
            format!("{} bytes", sizes.1),
        ),
        times("drain", drain),
        times("scrape", scrape),
    ]
}
