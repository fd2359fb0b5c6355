//! Taking a slot over from its last owner, under the slot's lease.
//!
//! The *generation* is odd while the new owner clears the old one's gauges and writes its own
//! name. A reader takes the generation, the values, the generation again and then the state of the
//! lease, so that it never shows an old value as a new owner's.

use crate::sync::{AtomicU64, Ordering, fence};

/// Marks a claim as under way. The caller holds the slot's lease. Returns the odd generation.
pub(crate) fn begin(generation: &AtomicU64) -> u64 {
    // Relaxed: the lease orders one owner after another. `| 1`: one may have died in a claim.
    let odd = generation.load(Ordering::Relaxed) | 1;
    generation.store(odd, Ordering::Relaxed);
    // Release: pairs with the fence in `still` (P10). A reader that sees anything the new owner
    // wrote sees the odd generation when it looks again.
    fence(Ordering::Release);
    odd
}

/// Marks the claim as done.
pub(crate) fn finish(generation: &AtomicU64, odd: u64) -> u64 {
    let even = odd.wrapping_add(1);
    // Release: pairs with the fence in `look` (P11): the owner block and the cleared gauges come
    // before it.
    generation.store(even, Ordering::Release);
    even
}

/// The generation at the start of a reading; odd: a claim is under way.
#[inline]
pub(crate) fn look(generation: &AtomicU64) -> u64 {
    let seen = generation.load(Ordering::Relaxed);
    fence(Ordering::Acquire); // (P11)
    seen
}

/// Whether what was read since [`look`] belongs to the generation it returned.
#[inline]
pub(crate) fn still(generation: &AtomicU64, seen: u64) -> bool {
    fence(Ordering::Acquire); // (P10)
    seen & 1 == 0 && generation.load(Ordering::Relaxed) == seen
}
