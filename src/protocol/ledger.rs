//! Draining and totals: how the primary empties a slot's counters with `swap(0)` while any reader
//! can still say what was counted in all, also when the primary is killed half way.
//!
//! Beside each drained cell (its *pending* count) the slot keeps a *ledger* (what was drained of
//! it before) and an *intent* (the ledger's value-to-be, written before the swap). A *sequence* is
//! odd while a drain is under way. The sum a reader wants is `ledger + pending`; the intent says
//! which side of the swap a half-done cell is on.
//!
//! Single-writer cells are never reset: the primary keeps a *watermark* for each, and their total
//! is the cell itself.

use crate::sync::{AtomicU64, Ordering, fence};

/// The counters of one slot, with the primary's accounts of them.
#[derive(Clone, Copy)]
pub(crate) struct Books<'a> {
    /// Odd while a drain of this slot is under way.
    pub(crate) sequence: &'a AtomicU64,
    /// The drained cells, in declared order.
    pub(crate) pending: &'a [AtomicU64],
    /// For each drained cell its ledger, then its intent.
    pub(crate) accounts: &'a [[AtomicU64; 2]],
    /// The single-writer cells, in declared order.
    pub(crate) single: &'a [AtomicU64],
    /// For each single-writer cell, how much of it has been put into intervals.
    pub(crate) watermarks: &'a [AtomicU64],
}

impl<'a> Books<'a> {
    /// The same, with the lengths' agreement said once, so that no loop checks it for each cell.
    #[inline(always)]
    fn even(self) -> Self {
        Books { accounts: &self.accounts[..self.pending.len()], ..self }
    }

    fn ledger(&self, i: usize) -> &'a AtomicU64 {
        &self.accounts[i][0]
    }

    fn intent(&self, i: usize) -> &'a AtomicU64 {
        &self.accounts[i][1]
    }
}

/// Most slots that are drained under one fence: enough to make its cost small (it costs more than
/// a swap), and few enough that a primary stopped half way keeps few totals unsettled.
pub(crate) const BATCH: usize = 8;

/// Whether nothing is pending in these cells. An idle slot is only looked at, and not drained: its
/// lines stay in its server's cache.
#[inline(always)]
pub(crate) fn is_idle(pending: &[AtomicU64]) -> bool {
    // Relaxed: a count that is missed here is found by the next drain. Every cell is looked at,
    // since a branch for each costs more.
    pending.iter().fold(0, |all, cell| all | cell.load(Ordering::Relaxed)) == 0
}

/// Reads and resets the drained counters of some slots, at most [`BATCH`]. Only the holder of the
/// primary lease calls this.
///
/// `count(cell, n)` is told of every cell that was not empty: which it is in a table with a row
/// for each slot. The number beside a slot is its row.
#[inline(always)]
pub(crate) fn drain(
    slots: &[(usize, Books<'_>)],
    mut count: impl FnMut(usize, u64),
    hook: impl Fn(&'static str),
) {
    for (_, books) in slots {
        // `| 1` and not `+ 1`: a primary that died here may have left it odd.
        let odd = books.sequence.load(Ordering::Relaxed) | 1;
        hook("drain: before sequence");
        books.sequence.store(odd, Ordering::Relaxed);
    }
    // SeqCst: pairs with the reader's fence in `close` (P2). Of these two fences one comes first.
    // If the reader's, then the loads below see at least what the reader saw in `pending`, so the
    // intent cannot fall behind a total already given out. If ours, the reader sees `odd`. One
    // fence does for all slots of the batch: each sequence is odd before it, and each cell is
    // loaded after it.
    fence(Ordering::SeqCst);
    hook("drain: after sequence");
    for (row, books) in slots {
        let books = books.even();
        let first = row * books.pending.len();
        for i in (0..books.pending.len()).rev() {
            let value = books.pending[i].load(Ordering::Relaxed);
            if value == 0 {
                continue;
            }
            // Relaxed: only the primary writes accounts, and the lease orders one primary after
            // the one before it.
            let ledger = books.ledger(i).load(Ordering::Relaxed);
            // Release: a reader that sees this intent and acquires it also sees the odd sequence
            // (P3).
            books.intent(i).store(ledger.wrapping_add(value), Ordering::Release);
            hook("drain: after intent");
            // AcqRel. Release: a reader that sees the emptied cell also sees the intent above
            // (P4). Acquire: the reverse order of the loop keeps causes at or above their effects
            // (P1).
            let delta = books.pending[i].swap(0, Ordering::AcqRel);
            hook("drain: after swap");
            // Release: a reader that sees the new ledger also sees the emptied cell, and so never
            // counts the delta twice (P5).
            books.ledger(i).store(ledger.wrapping_add(delta), Ordering::Release);
            hook("drain: after ledger");
            count(first + i, delta);
        }
        // Relaxed: written above, by this thread. Release: whoever sees the even sequence sees the
        // accounts it stands for (P6).
        let odd = books.sequence.load(Ordering::Relaxed);
        books.sequence.store(odd.wrapping_add(1), Ordering::Release);
    }
}

/// Reads the single-writer counters of one slot: `single[i]` is overwritten with what was counted
/// since the last drain. Only the holder of the primary lease calls this.
///
/// Returns how many cells were found behind their watermark (their delta is 0).
#[inline]
pub(crate) fn advance_watermarks(books: Books<'_>, single: &mut [u64]) -> u64 {
    let mut behind = 0;
    for i in (0..books.single.len()).rev() {
        // Acquire: causes before effects, as above (P1).
        let value = books.single[i].load(Ordering::Acquire);
        let mark = books.watermarks[i].load(Ordering::Relaxed);
        single[i] = 0;
        if value == mark {
            continue; // Write nothing for an idle counter.
        }
        match value.checked_sub(mark) {
            Some(delta) => single[i] = delta,
            None => behind += 1,
        }
        // Relaxed: read by primaries only, which the lease orders.
        books.watermarks[i].store(value, Ordering::Relaxed);
    }
    behind
}

/// What [`drain`] and [`advance_watermarks`] would tell, without changing anything. Only the primary
/// calls this, so no drain is under way.
pub(crate) fn peek(books: Books<'_>, drained: &mut [u64], single: &mut [u64]) {
    for i in (0..books.single.len()).rev() {
        // Acquire, here and below: causes before effects (P1).
        let value = books.single[i].load(Ordering::Acquire);
        single[i] = value.saturating_sub(books.watermarks[i].load(Ordering::Relaxed));
    }
    for i in (0..books.pending.len()).rev() {
        drained[i] = books.pending[i].load(Ordering::Acquire);
    }
}

/// Settles what a primary that died in the middle of a drain left behind. The new primary calls
/// this once per slot before its first drain. Returns whether a drain had been interrupted.
///
/// A cell whose intent is above its ledger was being drained. If `ledger + pending` is below the
/// intent, the swap happened and the delta died with the primary: the intent is the best that is
/// known of it. If not, the swap had not happened, or the cell has grown past the delta again,
/// which nobody can tell apart: then at most this one delta is missing from the total.
pub(crate) fn take_over(books: Books<'_>, hook: impl Fn(&'static str)) -> bool {
    let mut sequence = books.sequence.load(Ordering::Relaxed);
    let interrupted = sequence & 1 == 1;
    if interrupted {
        // `+ 2`: another odd number. A reader that found the lease free before we took it may
        // still be at this slot, and must not mix the dead primary's words with ours: it sees
        // that the sequence has changed. Relaxed: the stores below publish it (P12).
        sequence = sequence.wrapping_add(2);
        hook("takeover: before sequence");
        books.sequence.store(sequence, Ordering::Relaxed);
        hook("takeover: after sequence");
    }
    for i in 0..books.pending.len() {
        let ledger = books.ledger(i).load(Ordering::Relaxed);
        let intent = books.intent(i).load(Ordering::Relaxed);
        if intent == ledger {
            continue;
        }
        let mut settled = ledger;
        if interrupted && intent > ledger {
            // Acquire: as a reader's (P4); the swap, if it happened, is seen whole.
            let pending = books.pending[i].load(Ordering::Acquire);
            if ledger.wrapping_add(pending) < intent {
                settled = intent;
                // Release: a reader that sees it sees the emptied cell (P5).
                books.ledger(i).store(settled, Ordering::Release);
                hook("takeover: after ledger");
            }
        }
        // An intent left above its ledger would be taken for a drain under way by the readers of
        // the next one. Release: a reader that sees it also sees the new odd sequence (P12).
        books.intent(i).store(settled, Ordering::Release);
        hook("takeover: after intent");
    }
    if interrupted {
        // Release: as at the end of a drain (P6).
        books.sequence.store(sequence.wrapping_add(1), Ordering::Release);
    }
    interrupted
}

/// How a slot's sequence stood when a reading of it began.
#[inline(always)]
pub(crate) fn open(sequence: &AtomicU64) -> u64 {
    let sequence = sequence.load(Ordering::Relaxed);
    // Acquire: pairs with the Release of the sequence (P6).
    fence(Ordering::Acquire);
    sequence
}

/// What a slot's counters had counted in all, as far as its words say.
///
/// Returns whether each drained total is sure, *if* [`close`] then finds the sequence unchanged.
/// With an odd sequence and a living primary, a cell is sure only by its intent.
///
/// A total never steps back from one sure reading to the next, by whichever reader. Only relaxed
/// loads and fences: nothing else is guaranteed on a read-only mapping.
#[inline]
pub(crate) fn collect(
    books: Books<'_>,
    sequence: u64,
    primary_is_gone: bool,
    drained: &mut [u64],
    pending_out: &mut [u64],
    single: &mut [u64],
) -> bool {
    let books = books.even();
    let n = books.pending.len();
    let (drained, pending_out) = (&mut drained[..n], &mut pending_out[..n]);
    // Reverse of declared order, with an acquire after each load: an effect is read before its
    // cause, so causes are never below effects (P1).
    for i in (0..books.single.len()).rev() {
        single[i] = books.single[i].load(Ordering::Relaxed);
        fence(Ordering::Acquire);
    }
    let even = sequence & 1 == 0;
    let mut sure = true;
    for i in (0..books.pending.len()).rev() {
        let ledger = books.ledger(i).load(Ordering::Relaxed);
        fence(Ordering::Acquire); // (P5)
        let pending = books.pending[i].load(Ordering::Relaxed);
        fence(Ordering::Acquire); // (P4)
        pending_out[i] = pending;
        drained[i] = ledger.wrapping_add(pending);
        if even {
            continue;
        }
        let intent = books.intent(i).load(Ordering::Relaxed);
        fence(Ordering::Acquire); // (P3)
        if intent > ledger {
            drained[i] = intent;
        } else {
            sure &= primary_is_gone;
        }
    }
    sure
}

/// Ends the readings of any number of slots. After it, [`unchanged`] may be asked.
#[inline(always)]
pub(crate) fn close() {
    // SeqCst: pairs with the primary's fence in `drain` (P2).
    fence(Ordering::SeqCst);
}

/// After [`close`]: whether the sequence is still what [`open`] said.
#[inline(always)]
pub(crate) fn unchanged(sequence: &AtomicU64, seen: u64) -> bool {
    sequence.load(Ordering::Relaxed) == seen
}
