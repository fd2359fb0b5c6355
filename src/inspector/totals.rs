//! What was counted in all.

use std::sync::Arc;

use crate::layout::Layout;
use crate::schema::RecordId;
use crate::table::CounterTable;

/// What was counted since the region was created.
#[derive(Clone, Debug)]
pub struct Totals {
    pub(super) layout: Arc<Layout>,
    pub(super) counts: CounterTable,
    pub(super) pending: CounterTable,
    pub(super) settled: Vec<bool>,
    pub(super) sure: Vec<bool>,
    pub(super) ever_settled: Vec<bool>,
}

impl Totals {
    pub(super) fn new(layout: &Arc<Layout>) -> Self {
        let slots = layout.slot_count as usize;
        Totals {
            layout: Arc::clone(layout),
            counts: CounterTable::new(layout),
            pending: CounterTable::new(layout),
            settled: vec![false; slots],
            sure: vec![false; slots],
            ever_settled: vec![false; slots],
        }
    }

    /// The total under this name, over all label sets and slots; 0 for an unknown name.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        let ids = self.layout.schema.named(name);
        ids.fold(0, |sum, id| sum.wrapping_add(self.counts.sum(id)))
    }

    /// The total of one record, over all slots.
    #[must_use]
    pub fn of(&self, id: RecordId) -> u64 {
        self.counts.sum(id)
    }

    /// The total of one record in one slot, over all its owners.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn in_slot(&self, slot: usize, id: RecordId) -> u64 {
        self.counts.get(slot, id)
    }

    /// What of one record no drain has taken yet, over all slots; 0 for single-writer counters.
    #[must_use]
    pub fn pending(&self, id: RecordId) -> u64 {
        self.pending.sum(id)
    }

    /// What of one record no drain has taken yet, in one slot; 0 for single-writer counters.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn pending_in(&self, slot: usize, id: RecordId) -> u64 {
        self.pending.get(slot, id)
    }

    /// Whether a slot's totals were ever sure. If not, they are a guess that a later reading may
    /// fall below: not to be exported.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn is_known(&self, slot: usize) -> bool {
        self.ever_settled[slot]
    }

    /// Whether a slot's totals are sure. If not, they are the last sure ones: a primary is stopped
    /// in the middle of draining it.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn is_settled(&self, slot: usize) -> bool {
        self.settled[slot]
    }

    /// Whether all slots' totals are sure.
    #[must_use]
    pub fn all_settled(&self) -> bool {
        self.settled.iter().all(|settled| *settled)
    }
}
