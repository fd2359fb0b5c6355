//! Clocks, and who this process and this boot are.

use std::fs;

use nix::time::{ClockId, clock_gettime};

use crate::sync::{AtomicU64, Ordering};

/// Nanoseconds of CLOCK_MONOTONIC. Not the coarse clock: it ticks at 4 ms, and two publications
/// within a tick would tie.
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_MONOTONIC)
}

/// Nanoseconds since the Unix epoch.
pub(crate) fn realtime_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_REALTIME)
}

#[inline]
fn nanoseconds(clock: ClockId) -> u64 {
    // Both clocks exist on every Linux and are never negative; there is nothing to report.
    let time = clock_gettime(clock).map_or((0, 0), |t| (t.tv_sec(), t.tv_nsec()));
    (time.0 as u64).wrapping_mul(1_000_000_000).wrapping_add(time.1 as u64)
}

/// The kernel's name for this boot: monotonic times mean nothing under another. Zero where /proc
/// does not tell.
pub(crate) fn boot_id() -> [u8; 16] {
    // Not a `OnceLock`, which a forked child could wait for in vain, if another thread was in it at
    // the fork. Two threads may both read it: they read the same.
    static HIGH: AtomicU64 = AtomicU64::new(0);
    static LOW: AtomicU64 = AtomicU64::new(0);
    // Acquire: pairs with the Release below; who sees the low half sees the high one.
    let mut low = LOW.load(Ordering::Acquire);
    let mut high = HIGH.load(Ordering::Relaxed);
    if low == 0 {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let id = u128::from_str_radix(&hex, 16).unwrap_or(0);
        (high, low) = ((id >> 64) as u64, id as u64);
        HIGH.store(high, Ordering::Relaxed);
        LOW.store(low, Ordering::Release);
    }
    (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
}

/// The pid of this process, and its start time in clock ticks since boot (field 22 of
/// /proc/PID/stat, see proc(5)); together they name a process for good.
pub(crate) fn myself() -> (u64, u64) {
    let pid = u64::from(std::process::id());
    (pid, process_stat(pid).map_or(0, |stat| stat.start_time))
}

/// What /proc/PID/stat says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    /// One letter: R running, S sleeping, T stopped, Z zombie, …
    pub(crate) state: char,
    pub(crate) start_time: u64,
}

pub(crate) fn process_stat(pid: u64) -> Option<ProcessStat> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(ProcessStat {
        state: fields.first()?.chars().next()?,
        start_time: fields.get(19)?.parse().ok()?,
    })
}
