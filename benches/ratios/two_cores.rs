//! What two cores cost each other.

use std::hint::black_box;
use std::time::{Duration, Instant};

use shmstats::{Counter, Primary};

use crate::harness::{Case, Series, sample, sample_if};
use crate::machine::{IDLE, Partner, TwoCores};
use crate::report::{Goal, Row};
use crate::setting::{Setting, bare_words, counters};
use crate::sweeps::handles;

/// Ten times as often as the goal asks for, so that a sample holds a few drains and still is shorter
/// than a time slice.
const PERIOD: Duration = Duration::from_micros(100);
/// Orders to the partner.
const HERE: u32 = 1;
const ELSEWHERE: u32 = 2;

/// The cases, or nothing where there is only one processor to be had.
pub(crate) fn cases(setting: &Setting, cores: Option<(usize, usize)>) -> Vec<Row> {
    let Some(cores) = cores else {
        println!("two-core cases left out: this process may use one processor only\n");
        return Vec::new();
    };
    let measure = || TwoCores::measure(cores, setting.time / 20);
    let before = measure();
    let mut rows = neighbour(setting, cores);
    let between = measure();
    rows.iter_mut().for_each(|row| *row = row.clone().on_two_cores(before));
    let drained = drained(setting, cores);
    rows.extend(drained.into_iter().map(|row| row.on_two_cores(between)));
    let contended = contended(setting, cores);
    let after = measure();
    rows.extend(contended.into_iter().map(|row| row.on_two_cores(after)));
    rows
}

const GROUP: &str = "two cores";

/// A record of five, while the partner follows an order.
fn record<'a>(name: &str, partner: &'a Partner, order: u32, counters: &'a [Counter]) -> Case<'a> {
    Case::timed(name, move |repeats| {
        partner.order(order);
        let start = Instant::now();
        for _ in 0..repeats {
            counters.iter().for_each(|counter| counter.add(black_box(3)));
        }
        start.elapsed()
    })
}

fn neighbour(setting: &Setting, cores: (usize, usize)) -> Vec<Row> {
    let (_region, servers) = setting.full_region("neighbours", &counters(5), 2);
    let (_far, far_servers) = setting.full_region("far", &counters(5), 1);
    let mine = handles(&servers[..1], 5);
    let (next, far) = (handles(&servers[1..], 5), handles(&far_servers, 5));
    let hammer = move |order| {
        let counters = if order == HERE { &next } else { &far };
        (0..64).for_each(|_| counters.iter().for_each(Counter::inc));
    };
    let series = Partner::with(cores, hammer, |partner| {
        let mut cases = [
            record("record, other core idle", partner, IDLE, &mine),
            record("record, other region hammered", partner, ELSEWHERE, &mine),
            record("record, next slot hammered", partner, HERE, &mine),
        ];
        sample_if(&mut cases, setting.time, || partner.was_running())
    });
    let [idle, far, next] = series.as_slice() else { unreachable!("as many as cases") };
    vec![
        Row::alone(GROUP, idle, Goal::None),
        Row::compare(GROUP, far, &[idle], Goal::None),
        Row::compare(GROUP, next, &[far], Goal::Ratio(1.05)),
    ]
}

/// Drains once per period; between two drains it watches the clock.
struct Drainer {
    primary: Primary,
    interval: shmstats::Interval,
    next: Instant,
}

impl Drainer {
    fn of(region: &shmstats::Region) -> Self {
        let primary = region.primary().expect("the only primary");
        Drainer { interval: primary.interval(), primary, next: Instant::now() }
    }

    fn step(&mut self) {
        let now = Instant::now();
        if now >= self.next {
            self.primary.drain_into(&mut self.interval);
            black_box(&mut self.interval);
            self.next = now + PERIOD;
        }
    }
}

fn drained(setting: &Setting, cores: (usize, usize)) -> Vec<Row> {
    let (region, servers) = setting.full_region("drained", &counters(5), 2);
    let (far, far_servers) = setting.full_region("drained-far", &counters(5), 2);
    let mine = handles(&servers[..1], 5);
    let far_counters = handles(&far_servers[..1], 5);
    let (mut here, mut elsewhere) = (Drainer::of(&region), Drainer::of(&far));
    let drain = move |order| {
        if order == HERE {
            here.step();
        } else {
            far_counters.iter().for_each(Counter::inc);
            elsewhere.step();
        }
    };
    let series = Partner::with(cores, drain, |partner| {
        // A few drains in each sample.
        let sample = PERIOD * 3;
        let mut cases = [
            record("record, another region drained", partner, ELSEWHERE, &mine).lasting(sample),
            record("record, drained every 0.1 ms", partner, HERE, &mine).lasting(sample),
        ];
        sample_if(&mut cases, setting.time * 2, || partner.was_running())
    });
    let [far, here] = series.as_slice() else { unreachable!("as many as cases") };
    vec![Row::alone(GROUP, far, Goal::None), Row::compare(GROUP, here, &[far], Goal::Ratio(1.05))]
}

/// Two writers: in slots of their own, and behind what they share today.
fn contended(setting: &Setting, cores: (usize, usize)) -> Vec<Row> {
    let (_region, servers) = setting.full_region("contended", &counters(5), 2);
    let (mine, theirs) = (handles(&servers[..1], 5), handles(&servers[1..], 5));
    let cells = bare_words(5);
    let mutex = crate::counting::SharedMutex::new();
    let local = std::sync::Mutex::new([0u64; 5]);
    const SLOTS: u32 = 1;
    const CELLS: u32 = 2;
    const SHARED_MUTEX: u32 = 3;
    const LOCAL_MUTEX: u32 = 4;
    let write = |counters: &[Counter], what| match what {
        SLOTS => counters.iter().for_each(Counter::inc),
        CELLS => cells.iter().for_each(|cell| {
            cell.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }),
        SHARED_MUTEX => mutex.add([1; 5]),
        _ => local.lock().expect("nobody panics").iter_mut().for_each(|field| *field += 1),
    };
    let step = |order| (0..16).for_each(|_| write(&theirs, order));
    let series = Partner::with(cores, step, |partner| {
        let case = |name: &str, what| {
            let (mine, write) = (&mine, &write);
            Case::timed(name, move |repeats| {
                partner.order(what);
                let start = Instant::now();
                (0..repeats).for_each(|_| write(mine, what));
                start.elapsed()
            })
            .lasting(Duration::from_micros(100))
            .waiting()
        };
        let mut cases = [
            case("2 writers, a slot each", SLOTS),
            case("2 writers, the same 5 atomics", CELLS),
            case("2 writers, pthread mutex", SHARED_MUTEX),
            case("2 writers, std Mutex", LOCAL_MUTEX),
        ];
        sample(&mut cases, setting.time)
    });
    let [slots, others @ ..] = series.as_slice() else { unreachable!("as many as cases") };
    let compare = |other: &Series| Row::compare(GROUP, other, &[slots], Goal::None);
    std::iter::once(Row::alone(GROUP, slots, Goal::None))
        .chain(others.iter().map(compare))
        .collect()
}
