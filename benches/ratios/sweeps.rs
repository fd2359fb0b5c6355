//! What a reader pays: drain, totals, probe, attach and create, and how it grows.

use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::libc;
use shmstats::prometheus::Format;
use shmstats::{Counter, Inspector, Primary, Region, Server};

use crate::harness::{Case, sample};
use crate::report::{Goal, Growth, Row};
use crate::setting::{Setting, bare_words, counters};

const SLOTS: u32 = 64;
/// Words from one slot of the bare memory to the next: as in a region, parts that different
/// processes write lie on lines of their own.
const LINE: usize = 16;

/// All drained counters of some servers.
pub(crate) fn handles(servers: &[Server], count: usize) -> Vec<Counter> {
    let of = |server: &Server| {
        let counter = |n| server.counter(&format!("c{n}")).expect("declared");
        (0..count).map(counter).collect::<Vec<_>>()
    };
    servers.iter().flat_map(of).collect()
}

pub(crate) fn add_to_all(counters: &[Counter]) {
    counters.iter().for_each(Counter::inc);
}

/// Draining.
pub(crate) fn drain(setting: &Setting) -> Vec<Row> {
    const CELLS: usize = 8;
    let schema = counters(CELLS);
    let (dirty, dirty_servers) = setting.full_region("dirty", &schema, SLOTS);
    let (idle, _idle_servers) = setting.full_region("idle", &schema, SLOTS);
    let counters = handles(&dirty_servers, CELLS);
    let mut primary = dirty.primary().expect("the only primary");
    let mut interval = primary.interval();
    let mut idle_primary = idle.primary().expect("the only primary");
    let mut idle_interval = idle_primary.interval();

    let bare = bare_words(SLOTS as usize * LINE);
    let cells: Vec<&[AtomicU64]> = bare.chunks(LINE).map(|slot| &slot[..CELLS]).collect();
    let mut table = vec![0u64; SLOTS as usize * CELLS];
    let cells_again = cells.clone();

    let mut cases = [
        Case::prepared(
            "bare swap(0) sweep, 64 × 8",
            (),
            |()| {
                // The same adds as below: what they push out of the cache is alike for both.
                add_to_all(&counters);
                cells_again.iter().copied().flatten().for_each(|cell| {
                    cell.fetch_add(1, Ordering::Relaxed);
                });
            },
            |()| {
                for (row, cells) in table.chunks_mut(CELLS).zip(&cells) {
                    for (out, cell) in row.iter_mut().zip(*cells) {
                        *out = cell.swap(0, Ordering::AcqRel);
                    }
                }
                black_box(&mut table);
            },
        ),
        Case::prepared(
            "drain_into, 64 dirty × 8",
            (),
            |()| add_to_all(&counters),
            |()| primary.drain_into(black_box(&mut interval)),
        ),
        Case::prepared(
            "drain_into, 64 idle × 8",
            (),
            |()| {},
            |()| idle_primary.drain_into(black_box(&mut idle_interval)),
        ),
    ];
    let series = sample(&mut cases, setting.time);
    let [sweep, dirty, idle] = series.as_slice() else { unreachable!("as many as cases") };
    let group = "draining";
    vec![
        Row::alone(group, sweep, Goal::None),
        Row::compare(group, dirty, &[sweep], Goal::Ratio(1.25)),
        Row::compare(group, idle, &[sweep], Goal::Ratio(0.10)),
    ]
}

/// Totals and who is alive.
pub(crate) fn read(setting: &Setting) -> Vec<Row> {
    const CELLS: usize = 20;
    let (region, servers) = setting.full_region("read", &counters(CELLS), SLOTS);
    add_to_all(&handles(&servers, CELLS));
    let mut inspector = Inspector::open(region.path()).expect("a region to look at");
    let mut probe = region.primary().expect("the only primary");
    // Some of each in the ledgers and some pending.
    drop(probe.drain());
    add_to_all(&handles(&servers, CELLS));
    let file = File::open(region.path()).expect("a file to ask about");

    // The words that the totals of one slot stand in: pending cells, and per cell a ledger with
    // its intent behind it.
    let pending_words = CELLS.next_multiple_of(LINE);
    let stride = pending_words + (2 * CELLS).next_multiple_of(LINE);
    let bare = bare_words(SLOTS as usize * stride);
    let mut table = vec![0u64; SLOTS as usize * CELLS];

    let mut cases = [
        Case::new("bare load sweep, 64 × 20", || {
            for (row, slot) in table.chunks_exact_mut(CELLS).zip(bare.chunks_exact(stride)) {
                let (pending, ledgers) = slot.split_at(pending_words);
                for (n, out) in row.iter_mut().enumerate() {
                    let ledger = ledgers[2 * n].load(Ordering::Relaxed);
                    *out = ledger.wrapping_add(pending[n].load(Ordering::Relaxed));
                }
            }
            black_box(&mut table);
        }),
        Case::new("Inspector::totals, 64 × 20", || {
            black_box(inspector.totals());
        }),
        Case::new("64 bare F_OFD_GETLK", || {
            (0..i64::from(SLOTS)).for_each(|slot| ask(&file, (1 << 40) + 1024 + slot));
        }),
        Case::new("probe, 64 slots", || {
            black_box(probe.probe().expect("the kernel tells"));
        }),
    ];
    let series = sample(&mut cases, setting.time);
    let [sweep, totals, locks, probe] = series.as_slice() else { unreachable!("as many as cases") };
    let group = "reading";
    vec![
        Row::alone(group, sweep, Goal::None),
        Row::compare(group, totals, &[sweep], Goal::Ratio(1.5)),
        Row::alone(group, locks, Goal::None),
        Row::compare(group, probe, &[locks], Goal::Ratio(1.2)),
    ]
}

/// Asks the kernel for a lease, as a probe must.
fn ask(file: &File, offset: i64) {
    let mut lock = libc::flock {
        l_type: libc::F_RDLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and `lock` is what this command reads and writes.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    assert_eq!((answer, i32::from(lock.l_type)), (0, libc::F_WRLCK), "a held lease");
}

/// Attaching and creating.
pub(crate) fn start(setting: &Setting) -> Vec<Row> {
    let schema = counters(20);
    let path = setting.path("start");
    let there = Region::options(SLOTS / 2).create(&path, &schema).expect("room for a region");
    let new_path = setting.path("new");
    let mut cases = [
        Case::new("attach to a region of 64 slots", || {
            drop(black_box(Region::open(&path).expect("it exists")));
        }),
        Case::new("open and claim a slot", || {
            drop(black_box(Region::open(&path).and_then(|region| region.claim(3)).expect("free")));
        }),
        Case::prepared(
            "create a region of 64 slots",
            None,
            |old: &mut Option<Region>| {
                if let Some(old) = old.take() {
                    old.remove().expect("nobody else is attached");
                }
            },
            |new| *new = Some(Region::create(&new_path, &schema, SLOTS / 2).expect("room")),
        )
        .lasting(Duration::from_micros(1)),
    ];
    let series = sample(&mut cases, setting.time);
    drop(there);
    let [attach, claim, create] = series.as_slice() else { unreachable!("as many as cases") };
    let group = "starting";
    vec![
        Row::alone(group, attach, Goal::Time(100e3)),
        Row::alone(group, claim, Goal::None),
        Row::alone(group, create, Goal::Time(1e6)),
    ]
}

/// Costs at growing numbers of slots, with 20 drained counters in each.
pub(crate) fn growth(setting: &Setting) -> Vec<Growth> {
    const CELLS: usize = 20;
    allow_many_files();
    let names = ["drain_into, dirty", "drain_into, idle", "totals", "probe", "scrape as text"];
    let mut growth = names.map(|case| Growth { case, points: Vec::new() });
    for slots in [1, 4, 16, 64, 256, 1024] {
        let name = format!("growth-{slots}");
        let (region, servers) = setting.full_region(&name, &counters(CELLS), slots);
        let counters = handles(&servers, CELLS);
        let mut primary = region.primary().expect("the only primary");
        let mut interval = primary.interval();
        let mut inspector = Inspector::open(region.path()).expect("a region to look at");
        let medians = growth_at(setting, &counters, &mut primary, &mut interval, &mut inspector);
        for (line, median) in growth.iter_mut().zip(medians) {
            line.points.push((slots, median));
        }
    }
    growth.into()
}

fn growth_at(
    setting: &Setting,
    counters: &[Counter],
    primary: &mut Primary,
    interval: &mut shmstats::Interval,
    inspector: &mut Inspector,
) -> Vec<f64> {
    let time = setting.time / 10;
    let mut text = Vec::new();
    fn median(time: Duration, case: Case<'_>) -> f64 {
        sample(&mut [case], time)[0].time().median
    }
    vec![
        median(
            time,
            Case::prepared(
                "drain_into, dirty",
                (),
                |()| add_to_all(counters),
                |()| primary.drain_into(interval),
            ),
        ),
        median(time, Case::new("drain_into, idle", || primary.drain_into(interval))),
        median(
            time,
            Case::new("totals", || {
                black_box(inspector.totals());
            }),
        ),
        median(
            time,
            Case::new("probe", || {
                black_box(primary.probe().expect("the kernel tells"));
            }),
        ),
        median(
            time,
            Case::new("scrape as text", || {
                text.clear();
                inspector.encode(Format::Text, &mut text).expect("the kernel tells");
            }),
        ),
    ]
}

/// Each claimed slot holds a descriptor.
fn allow_many_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is an `rlimit` to write to.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is an `rlimit` to read from. A refusal shows when descriptors run out.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
}
