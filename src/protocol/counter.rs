//! Counting. A drained counter is added to by any thread and emptied by the primary; a
//! single-writer counter is added to by one thread and never reset.

use crate::sync::{AtomicU64, Ordering};

/// Adds `n` to a drained counter.
#[inline(always)]
pub(crate) fn add(cell: &AtomicU64, n: u64) {
    // Release: whoever acquires this value also sees what this thread counted before it, so that
    // counters read in reverse order of being added never show an effect without its cause (P1).
    cell.fetch_add(n, Ordering::Release);
}

/// Adds `n` to a single-writer counter. The caller is the only thread that writes `cell`.
#[inline(always)]
pub(crate) fn add_single_writer(cell: &AtomicU64, n: u64) {
    // Relaxed: only this thread writes the cell, so it reads its own last store.
    let value = cell.load(Ordering::Relaxed);
    // Release: as in `add` (P1). A plain store: no lock prefix, and nobody else's add to lose.
    cell.store(value.wrapping_add(n), Ordering::Release);
}
