//! The words of one slot that counting needs, on the heap instead of in a file.

use crate::check::on;
use crate::interface::Protocol;
use crate::sync::{self, AtomicU64};

pub(crate) struct Slot {
    pub(crate) sequence: AtomicU64,
    pub(crate) pending: Vec<AtomicU64>,
    pub(crate) accounts: Vec<AtomicU64>,
    pub(crate) single: Vec<AtomicU64>,
    pub(crate) watermarks: Vec<AtomicU64>,
}

pub(crate) fn zeros(n: usize) -> Vec<AtomicU64> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}

impl Slot {
    pub(crate) fn new(drained: usize, single: usize) -> Self {
        sync::set_up();
        Self {
            sequence: AtomicU64::new(0),
            pending: zeros(drained),
            accounts: zeros(2 * drained),
            single: zeros(single),
            watermarks: zeros(single),
        }
    }

    /// One drained cell with 2 in its ledger, from a whole drain, and 2 pending.
    pub(crate) fn drained_before<P: Protocol>() -> Self {
        let slot = Self::new(1, 0);
        P::add(&slot.pending[0], 2);
        slot.drain::<P, 1>();
        P::add(&slot.pending[0], 2);
        slot
    }

    /// A whole drain; what it took of each drained cell.
    pub(crate) fn drain<P: Protocol, const N: usize>(&self) -> [u64; N] {
        let mut drained = [0; N];
        P::drain(self, &mut drained, &mut [], on);
        drained
    }

    /// One try at the totals of the drained cells. `gone` is asked after the sequence is read and
    /// before anything else is.
    pub(crate) fn totals<P: Protocol, const N: usize>(
        &self,
        gone: impl FnOnce() -> bool,
    ) -> Option<[u64; N]> {
        let sequence = P::open(self);
        let gone = sequence & 1 == 1 && gone();
        self.totals_since::<P, N>(sequence, gone)
    }

    /// The rest of [`Self::totals`].
    pub(crate) fn totals_since<P: Protocol, const N: usize>(
        &self,
        sequence: u64,
        gone: bool,
    ) -> Option<[u64; N]> {
        let mut totals = [0; N];
        let sure = P::collect(self, sequence, gone, &mut totals, &mut []);
        P::close();
        (P::unchanged(self, sequence) && sure).then_some(totals)
    }

    /// The total of the only drained cell, when nothing runs any more.
    pub(crate) fn settled<P: Protocol>(&self) -> u64 {
        let [total] = self.totals::<P, 1>(|| false).expect("nothing runs, so it is settled");
        total
    }
}
