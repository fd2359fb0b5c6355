//! The machine, and how two of its cores stand to each other.
//!
//! The cores of a shared machine may be siblings of one physical core or far apart, and change
//! places between two runs. So every figure that two cores make together is shown beside the time
//! in which they hand a cache line to and fro, and beside how much slower arithmetic is on one
//! while the other computes as well (1: two cores; towards 2: siblings, or two tenants of one).

use std::cell::Cell;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::harness::{Case, ratio, sample, sample_if};

/// A gap this long between two steps of the partner means that it was not running.
const GAP: Duration = Duration::from_micros(50);
/// The partner waits for the next order.
pub(crate) const IDLE: u32 = 0;
const STOP: u32 = u32::MAX;

/// What the results depend on.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    cpu: String,
    kernel: String,
    hypervisor: bool,
    load: String,
    /// Processors this process may use.
    pub(crate) cpus: Vec<usize>,
}

impl Machine {
    /// Asks /proc.
    pub(crate) fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let line = |key: &str| cpuinfo.lines().find(|line| line.starts_with(key)).unwrap_or("");
        let value = |key: &str| line(key).split_once(':').map_or("", |(_, value)| value.trim());
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        let number = |key: &str| value(key).parse().unwrap_or(0u32);
        Machine {
            cpu: format!(
                "{} (family {}, model {}, stepping {})",
                value("model name"),
                number("cpu family"),
                // Not the line "model name", which begins alike.
                cpuinfo
                    .lines()
                    .find_map(|line| line.strip_prefix("model\t\t: "))
                    .unwrap_or("unknown"),
                number("stepping"),
            ),
            // The version, without what its builder put behind it.
            kernel: read("/proc/sys/kernel/osrelease")
                .trim()
                .split('-')
                .next()
                .unwrap_or("")
                .into(),
            hypervisor: line("flags").contains(" hypervisor"),
            load: read("/proc/loadavg").trim().into(),
            cpus: (0..CpuSet::count()).filter(|n| allowed.is_set(*n).unwrap_or(false)).collect(),
        }
    }

    /// For the JSON.
    pub(crate) fn json(&self) -> Value {
        json!({
            "cpu": self.cpu,
            "cpus": self.cpus.len(),
            "virtual": self.hypervisor,
            "kernel": self.kernel,
            "load_average": self.load,
        })
    }

    /// For people.
    pub(crate) fn print(&self) {
        let virtual_ = if self.hypervisor { ", virtual" } else { "" };
        let (cpu, count, kernel, load) = (&self.cpu, self.cpus.len(), &self.kernel, &self.load);
        println!("{cpu}, {count} processors{virtual_}; Linux {kernel}; load {load}\n");
    }

    /// Two processors, if there are.
    pub(crate) fn two(&self) -> Option<(usize, usize)> {
        Some((*self.cpus.first()?, *self.cpus.get(1)?))
    }
}

fn pin(cpus: &[usize]) {
    let mut set = CpuSet::new();
    for cpu in cpus {
        // Both can fail only for a processor that went away, and then the figures show it.
        let _ = set.set(*cpu);
    }
    let _ = sched_setaffinity(Pid::from_raw(0), &set);
}

/// The words between a thread and its partner, on lines of their own.
#[repr(align(128))]
struct Line<T>(T);

/// A thread on another core that does what it is told.
pub(crate) struct Partner {
    order: Line<AtomicU32>,
    obeyed: Line<AtomicU32>,
    steps: Line<AtomicU64>,
    gaps: Line<AtomicU64>,
    gaps_seen: Cell2,
}

/// A `Cell` that only the ordering thread touches.
struct Cell2(Cell<u64>);
// SAFETY: only methods of the thread that made the partner touch it; the partner's own thread
// uses the atomics alone.
unsafe impl Sync for Cell2 {}

impl Partner {
    /// Runs `body` on the first core while a partner on the second does `step(order)` again and
    /// again; a step should take a few microseconds at most.
    pub(crate) fn with<R>(
        cores: (usize, usize),
        mut step: impl FnMut(u32) + Send,
        body: impl FnOnce(&Partner) -> R,
    ) -> R {
        let before = Machine::here().cpus;
        let partner = Partner {
            order: Line(AtomicU32::new(IDLE)),
            obeyed: Line(AtomicU32::new(IDLE)),
            steps: Line(AtomicU64::new(0)),
            gaps: Line(AtomicU64::new(0)),
            gaps_seen: Cell2(Cell::new(0)),
        };
        let result = std::thread::scope(|scope| {
            let shared = &partner;
            scope.spawn(move || {
                pin(&[cores.1]);
                let mut last = Instant::now();
                loop {
                    let order = shared.order.0.load(Ordering::Acquire);
                    match order {
                        STOP => return,
                        IDLE => (0..16).for_each(|_| spin_loop()),
                        order => step(order),
                    }
                    let now = Instant::now();
                    if now - last > GAP {
                        shared.gaps.0.fetch_add(1, Ordering::Relaxed);
                    }
                    last = now;
                    if shared.obeyed.0.load(Ordering::Relaxed) != order {
                        shared.obeyed.0.store(order, Ordering::Release);
                    }
                    shared.steps.0.fetch_add(1, Ordering::Release);
                }
            });
            pin(&[cores.0]);
            let result = body(&partner);
            partner.order.0.store(STOP, Ordering::Release);
            result
        });
        pin(&before);
        result
    }

    /// Gives an order and returns once the partner follows it.
    pub(crate) fn order(&self, order: u32) {
        self.order.0.store(order, Ordering::Release);
        while self.obeyed.0.load(Ordering::Acquire) != order {
            spin_loop();
        }
    }

    /// Whether the partner was running all the time since the last call.
    pub(crate) fn was_running(&self) -> bool {
        let steps = self.steps.0.load(Ordering::Acquire);
        // A gap shows once it is over.
        while self.steps.0.load(Ordering::Acquire) < steps + 2 {
            spin_loop();
        }
        let gaps = self.gaps.0.load(Ordering::Relaxed);
        self.gaps_seen.0.replace(gaps) == gaps
    }
}

/// How two cores stand to each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TwoCores {
    /// A line handed to the other core and back.
    pub(crate) round_trip_ns: f64,
    /// Arithmetic while the other core computes, too, to arithmetic alone.
    pub(crate) alu: f64,
}

impl TwoCores {
    /// Takes about twice `time`.
    pub(crate) fn measure(cores: (usize, usize), time: Duration) -> Self {
        // On a busy machine both cores may have been ours together at no time.
        let insist = |measure: &dyn Fn() -> f64| {
            (0..5).map(|_| measure()).find(|figure| !figure.is_nan()).unwrap_or(f64::NAN)
        };
        TwoCores {
            round_trip_ns: insist(&|| round_trip(cores, time)),
            alu: insist(&|| alu(cores, time)),
        }
    }
}

fn round_trip(cores: (usize, usize), time: Duration) -> f64 {
    const THROWS: u64 = 64;
    let ball = Line(AtomicU64::new(0));
    let give_back = |_| {
        // Odd: thrown by the other side. A few looks, so that orders are heard.
        for _ in 0..256 {
            let value = ball.0.load(Ordering::Acquire);
            if value & 1 == 1 {
                ball.0.store(value + 1, Ordering::Release);
            }
        }
    };
    Partner::with(cores, give_back, |partner| {
        partner.order(1);
        let throw = |repeats| {
            let start = Instant::now();
            for _ in 0..repeats * THROWS {
                let value = ball.0.load(Ordering::Relaxed);
                ball.0.store(value + 1, Ordering::Release);
                while ball.0.load(Ordering::Acquire) != value + 2 {}
            }
            start.elapsed()
        };
        let series =
            sample_if(&mut [Case::timed("round trip", throw)], time, || partner.was_running());
        series[0].time().median / THROWS as f64
    })
}

/// Four chains, to keep a core's units busy.
fn compute() {
    let mut chains = [1u64, 2, 3, 4].map(black_box);
    for _ in 0..256 {
        for chain in &mut chains {
            *chain = chain.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (*chain >> 7);
        }
    }
    black_box(chains);
}

fn alu(cores: (usize, usize), time: Duration) -> f64 {
    Partner::with(
        cores,
        |_| compute(),
        |partner| {
            let under = |order| {
                Case::timed("compute", move |repeats| {
                    partner.order(order);
                    let start = Instant::now();
                    (0..repeats).for_each(|_| compute());
                    start.elapsed()
                })
            };
            let series = sample_if(&mut [under(IDLE), under(1)], time, || partner.was_running());
            ratio(&series[1], &[&series[0]]).median
        },
    )
}

/// The time of reading the clock, which every sample contains once.
pub(crate) fn clock_read(time: Duration) -> f64 {
    let read = Case::new("clock", || {
        black_box(Instant::now());
    });
    sample(&mut [read], time)[0].time().median
}
