//! Gauges that stand alone: one value word, and one word that says under which reset number it
//! was set, plus one, so that zero means absent.
//!
//! A reset hides them all by raising the region's reset number; the next `set` shows them again.

use crate::sync::{AtomicU64, Ordering, fence};

/// Replaces the value. Any thread of the owner may call this.
#[inline(always)]
pub(crate) fn set(value: &AtomicU64, mark: &AtomicU64, reset: &AtomicU64, bits: u64) {
    // Release: a reader that sees this value sees the claim of the owner who set it, also where
    // another thread made the claim and the mark stays as it is (P10).
    value.store(bits, Ordering::Release);
    show(mark, reset);
}

/// Adds to an i64 value (two's complement). Any thread of the owner may call this.
#[inline(always)]
pub(crate) fn add(value: &AtomicU64, mark: &AtomicU64, reset: &AtomicU64, n: i64) {
    // Release: as in `set` (P10).
    value.fetch_add(n as u64, Ordering::Release);
    show(mark, reset);
}

#[inline(always)]
fn show(mark: &AtomicU64, reset: &AtomicU64) {
    let now = reset.load(Ordering::Relaxed).wrapping_add(1);
    // Relaxed, and no store when it is already there: the common case costs two loads.
    if mark.load(Ordering::Relaxed) != now {
        // Release: pairs with the fence in `read` (P9): a reader that finds the gauge present
        // finds the value that made it so, or a later one. `fetch_max` and not `store`: another
        // thread may know of a later reset already, and must not be hidden again.
        mark.fetch_max(now, Ordering::Release);
    }
}

/// Hides the value until it is set again. The caller holds the slot's lease.
pub(crate) fn clear(value: &AtomicU64, mark: &AtomicU64) {
    // Release: a reader that sees the emptied mark sees the claim it belongs to (P10).
    mark.store(0, Ordering::Release);
    value.store(0, Ordering::Relaxed);
}

/// The value, if it was set since the last reset.
#[inline]
pub(crate) fn read(value: &AtomicU64, mark: &AtomicU64, reset_number: u64) -> Option<u64> {
    let shown = mark.load(Ordering::Relaxed) == reset_number.wrapping_add(1);
    fence(Ordering::Acquire); // (P9)
    shown.then(|| value.load(Ordering::Relaxed))
}
