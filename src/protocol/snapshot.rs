//! Snapshots: several values published together by one writer and read whole, by a sequence lock.
//!
//! The words of a snapshot are `sequence | reset number | time | present bits | values…`. The
//! writer never waits. A reader retries a bounded number of times and never waits for a writer
//! that died half way: such a snapshot is absent until the slot's next owner publishes.

use crate::sync::{AtomicU64, Ordering, fence};

/// Words before the values.
pub(crate) const HEAD_WORDS: usize = 4;
const SEQUENCE: usize = 0;
const RESET: usize = 1;
const TIME: usize = 2;
const PRESENT: usize = 3;

/// How often a reader tries before it calls a snapshot unreadable.
const READ_TRIES: usize = 64;

/// What stands beside the values of a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The sequence it was published under: even, and larger the later.
    pub(crate) sequence: u64,
    /// The region's reset number at the time.
    pub(crate) reset: u64,
    /// When, in nanoseconds of CLOCK_MONOTONIC.
    pub(crate) time: u64,
    /// One bit per value: whether it was given.
    pub(crate) present: u64,
}

/// Publishes `values` under `stamp` (its sequence is ignored). The caller is the only writer.
#[inline(always)]
pub(crate) fn publish(
    words: &[AtomicU64],
    stamp: Stamp,
    values: &[u64],
    hook: impl Fn(&'static str),
) {
    let (head, cells) = words.split_at(HEAD_WORDS);
    // Relaxed: only this writer writes it, or the slot's last owner did, whom the lease orders
    // before. `| 1` and not `+ 1`: that owner may have died with it odd.
    let odd = head[SEQUENCE].load(Ordering::Relaxed) | 1;
    hook("publish: before sequence");
    head[SEQUENCE].store(odd, Ordering::Relaxed);
    // Release: pairs with the reader's second fence. A reader that sees any store below sees the
    // odd sequence when it looks again (P7).
    fence(Ordering::Release);
    hook("publish: after sequence");
    head[RESET].store(stamp.reset, Ordering::Relaxed);
    head[TIME].store(stamp.time, Ordering::Relaxed);
    head[PRESENT].store(stamp.present, Ordering::Relaxed);
    for (cell, value) in cells.iter().zip(values) {
        cell.store(*value, Ordering::Relaxed);
        hook("publish: after value");
    }
    // Release: pairs with the reader's first fence. Whoever sees the even sequence sees every
    // store above (P8).
    head[SEQUENCE].store(odd.wrapping_add(1), Ordering::Release);
}

/// Empties a snapshot: nothing present, under a sequence of its own so that readers notice.
pub(crate) fn clear(words: &[AtomicU64], hook: impl Fn(&'static str)) {
    publish(words, Stamp::default(), &[], hook);
}

/// Reads the newest publication into `values`. `None`: nothing was ever published, or a writer is
/// (or died) in the middle of publishing.
#[inline]
pub(crate) fn read(words: &[AtomicU64], values: &mut [u64]) -> Option<Stamp> {
    let stamp = (0..READ_TRIES).find_map(|_| read_once(words, values))?;
    (stamp.sequence != 0).then_some(stamp)
}

/// One try of [`read`]. `None`: what was read is not whole. Sequence 0: nothing was ever published.
#[inline(always)]
pub(crate) fn read_once(words: &[AtomicU64], values: &mut [u64]) -> Option<Stamp> {
    let (head, cells) = words.split_at(HEAD_WORDS);
    let sequence = head[SEQUENCE].load(Ordering::Relaxed);
    fence(Ordering::Acquire); // (P8)
    let stamp = Stamp {
        sequence,
        reset: head[RESET].load(Ordering::Relaxed),
        time: head[TIME].load(Ordering::Relaxed),
        present: head[PRESENT].load(Ordering::Relaxed),
    };
    for (value, cell) in values.iter_mut().zip(cells) {
        *value = cell.load(Ordering::Relaxed);
    }
    fence(Ordering::Acquire); // (P7)
    let whole = sequence & 1 == 0 && head[SEQUENCE].load(Ordering::Relaxed) == sequence;
    whole.then_some(stamp)
}
