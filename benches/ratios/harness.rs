//! Sampling made for noisy machines.
//!
//! The cases of a group take turns, a short sample each, so that whatever slows the machine down
//! slows all of them. A sample during which the thread was switched out says nothing about the
//! code and is dropped. What is reported of two cases is the median of the ratios of the rounds in
//! which both were sampled, and not the ratio of two medians.

use std::time::{Duration, Instant};

use nix::libc;
use nix::time::{ClockId, clock_gettime};

/// How long one sample of a short operation takes: far longer than reading the clock, far shorter
/// than a time slice.
const SAMPLE: Duration = Duration::from_micros(25);
/// From here on a single operation is longer than the machine leaves a thread alone when others
/// want its processor, too.
const LONG: Duration = Duration::from_micros(500);
/// Rounds after which a group is long enough, whatever time is left.
const MOST_ROUNDS: usize = 20_000;
/// Below so many undropped rounds a group goes on beyond its time, up to four times it.
const FEWEST_ROUNDS: usize = 30;

/// Runs an operation so many times and says how long that took, without what it needs before.
type Run<'a> = Box<dyn FnMut(u64) -> Duration + 'a>;

/// One thing that is measured.
pub(crate) struct Case<'a> {
    name: String,
    run: Run<'a>,
    repeats: u64,
    waits: bool,
    /// A long operation: samples in which it was switched out count the thread's own time.
    long: bool,
}

impl<'a> Case<'a> {
    /// An operation that can be repeated at once.
    pub(crate) fn new(name: impl Into<String>, mut operation: impl FnMut() + 'a) -> Self {
        Case::timed(name, move |repeats| {
            let start = Instant::now();
            for _ in 0..repeats {
                operation();
            }
            start.elapsed()
        })
    }

    /// An operation that needs something done before each time, which is not measured.
    pub(crate) fn prepared<T: 'a>(
        name: impl Into<String>,
        mut state: T,
        mut prepare: impl FnMut(&mut T) + 'a,
        mut operation: impl FnMut(&mut T) + 'a,
    ) -> Self {
        Case::timed(name, move |repeats| {
            let mut total = Duration::ZERO;
            for _ in 0..repeats {
                prepare(&mut state);
                let start = Instant::now();
                operation(&mut state);
                total += start.elapsed();
            }
            total
        })
    }

    /// An operation that takes its own time.
    pub(crate) fn timed(name: impl Into<String>, run: impl FnMut(u64) -> Duration + 'a) -> Self {
        Case { name: name.into(), run: Box::new(run), repeats: 0, waits: false, long: false }
    }

    /// Samples last so long instead of the usual time.
    pub(crate) fn lasting(mut self, sample: Duration) -> Self {
        self.calibrate(sample);
        self
    }

    /// Giving the processor up is part of the operation, as of a lock's, and drops no sample.
    pub(crate) fn waiting(mut self) -> Self {
        self.waits = true;
        self
    }

    fn calibrate(&mut self, sample: Duration) {
        let mut repeats = 1;
        // The best of three, so that one interruption does not make all samples too short.
        let mut best = |repeats| (0..3).map(|_| (self.run)(repeats)).min().unwrap_or_default();
        self.long = best(1) > LONG;
        while best(repeats) < sample && repeats < 1 << 24 {
            repeats *= 2;
        }
        self.repeats = repeats;
    }
}

/// What was sampled of one case.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// The case's name.
    pub(crate) name: String,
    /// Nanoseconds per operation in each round; nothing where the sample was dropped.
    rounds: Vec<Option<f64>>,
}

/// A number with the quarter below and above it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    /// Half of the samples are below.
    pub(crate) median: f64,
    /// A quarter of the samples is below.
    pub(crate) low: f64,
    /// A quarter of the samples is above.
    pub(crate) high: f64,
}

/// The quartiles of samples; not-a-number for none.
pub(crate) fn spread(samples: impl Iterator<Item = f64>) -> Spread {
    let mut sorted: Vec<f64> = samples.collect();
    sorted.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let place = (sorted.len().saturating_sub(1) as f64 * part).round() as usize;
        sorted.get(place).copied().unwrap_or(f64::NAN)
    };
    Spread { median: at(0.5), low: at(0.25), high: at(0.75) }
}

impl Series {
    /// Nanoseconds per operation.
    pub(crate) fn time(&self) -> Spread {
        spread(self.rounds.iter().flatten().copied())
    }

    /// How many samples there were, and how many of them were dropped.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.rounds.len(), self.rounds.iter().filter(|sample| sample.is_none()).count())
    }
}

/// The ratios of a case to the sum of others, round by round.
pub(crate) fn ratio(case: &Series, others: &[&Series]) -> Spread {
    spread((0..case.rounds.len()).filter_map(|round| {
        let mut sum = 0.0;
        for other in others {
            sum += other.rounds[round]?;
        }
        Some(case.rounds[round]? / sum)
    }))
}

/// Samples a group of cases in turns for so long.
pub(crate) fn sample(cases: &mut [Case<'_>], time: Duration) -> Vec<Series> {
    sample_if(cases, time, || true)
}

/// As [`sample`]; a sample after which `valid` says no is dropped, too.
pub(crate) fn sample_if(
    cases: &mut [Case<'_>],
    time: Duration,
    mut valid: impl FnMut() -> bool,
) -> Vec<Series> {
    for case in cases.iter_mut().filter(|case| case.repeats == 0) {
        case.calibrate(SAMPLE);
    }
    let new = |case: &Case<'_>| Series { name: case.name.clone(), rounds: Vec::new() };
    let mut series: Vec<Series> = cases.iter().map(new).collect();
    let start = Instant::now();
    let mut whole_rounds = 0;
    for round in 0..MOST_ROUNDS {
        let spent = start.elapsed();
        if spent >= time * 4 || (spent >= time && whole_rounds >= FEWEST_ROUNDS) {
            break;
        }
        let mut whole = true;
        for turn in 0..cases.len() {
            // Each round begins with another case, so that none always follows the same one.
            let place = (round + turn) % cases.len();
            let case = &mut cases[place];
            let (before, own_before) = (switches(), own_time());
            let mut took = (case.run)(case.repeats);
            let (after, own) = (switches(), own_time() - own_before);
            let (gave_up, taken) = (after.0 - before.0, after.1 - before.1);
            let mut undisturbed = taken == 0 && (gave_up == 0 || case.waits) && valid();
            if case.long && !undisturbed {
                (took, undisturbed) = (own, true);
            }
            let ns = took.as_nanos() as f64 / case.repeats as f64;
            series[place].rounds.push(undisturbed.then_some(ns));
            whole &= undisturbed;
        }
        whole_rounds += usize::from(whole);
    }
    series
}

/// The time this thread has run.
fn own_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}

/// How often this thread gave its processor up, or had it taken away.
fn switches() -> (i64, i64) {
    // SAFETY: all-zero is a valid `rusage`: it is plain integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a `rusage` to write to, and this thread's usage always exists.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    (usage.ru_nvcsw, usage.ru_nivcsw)
}
