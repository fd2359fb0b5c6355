//! What a fork does to leases: the child closes what it inherited, and nobody opens a lease in the
//! middle of another thread's fork.
#![allow(unsafe_code)]

use std::time::Duration;

use crossbeam_utils::CachePadded;
use nix::libc;

use super::entry::{LOCAL, TAKEN, entries};
use crate::sync::{AtomicU64, Ordering};

/// How often this process has been forked off: 0 in the first, one more in each child.
#[inline(always)]
pub(crate) fn fork_number() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Read by every add to a single-writer counter, so it shares its line with nothing.
static FORKS: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));

/// Sets the fork handlers, once. Not a `Once`, which a child could wait for in vain, if another
/// thread was in it at the fork.
pub(super) fn watch_forks() {
    const DONE: u64 = u64::MAX;
    static STATE: AtomicU64 = AtomicU64::new(0);
    let me = u64::from(std::process::id());
    loop {
        // Acquire: whoever finds it done goes on as if it had done it.
        let state = STATE.load(Ordering::Acquire);
        match state {
            DONE => return,
            // Another thread is about to.
            who if who == me => std::thread::yield_now(),
            // Nobody yet, or a thread of the parent.
            _ => {
                let mine =
                    STATE.compare_exchange(state, me, Ordering::Acquire, Ordering::Relaxed).is_ok();
                if mine {
                    set_fork_handlers();
                    STATE.store(DONE, Ordering::Release);
                }
            }
        }
    }
}

fn set_fork_handlers() {
    // SAFETY: all three are `extern "C" fn()` for the life of the program; `in_child` does only
    // what is allowed between fork and exec in a threaded process.
    let failed =
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
    if failed != 0 {
        tracing::warn!(errno = failed, "no fork handler: do not fork while stats are shared");
    }
}

/// Forks begun by threads of this process, and of those the ones that have returned.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static RETURNED: AtomicU64 = AtomicU64::new(0);

/// How long opening a lease's description waits for a moment at which no other thread forks. One
/// fork takes milliseconds, in a big process.
pub(super) const FORK_PATIENCE: Duration = Duration::from_secs(2);

/// A time at which no thread was in the middle of a fork.
#[derive(Clone, Copy)]
pub(super) struct Calm(u64);

impl Calm {
    pub(super) fn now() -> Option<Self> {
        // SeqCst, here and in `lasted` and the handlers: one order of all of them, with `fork`
        // itself between `before_fork` and `after_fork`. Returned forks are read first, so that
        // one that begins in between makes the numbers differ.
        let returned = RETURNED.load(Ordering::SeqCst);
        (BEGUN.load(Ordering::SeqCst) == returned).then_some(Calm(returned))
    }

    /// Whether no fork has begun since.
    pub(super) fn lasted(self) -> bool {
        BEGUN.load(Ordering::SeqCst) == self.0
    }
}

extern "C" fn before_fork() {
    BEGUN.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn after_fork() {
    RETURNED.fetch_add(1, Ordering::SeqCst);
}

/// Runs in a forked child before `fork` returns. Async-signal-safe: atomics, fstat(2) and close(2).
extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    // The forks of other threads do not return here.
    RETURNED.store(BEGUN.load(Ordering::Relaxed), Ordering::Relaxed);
    for entry in entries() {
        // An entry stays TAKEN or open in the hands of a `Lease` the child inherited, which
        // frees it when dropped.
        let fd = entry.fd.load(Ordering::Relaxed);
        if fd >= 0 {
            entry.fd.store(TAKEN, Ordering::Relaxed);
            if entry.is_open(fd) {
                let _ = nix::unistd::close(fd);
            }
        }
        if fd == LOCAL {
            entry.fd.store(TAKEN, Ordering::Relaxed);
        }
        entry.seat.store(0, Ordering::Relaxed);
    }
}
