//! Plain tables of what was read: counts and gauge values per slot, and how they combine. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::layout::{Layout, Place};
use crate::protocol::snapshot::Stamp;
use crate::schema::{Kind, Lifetime, RecordId, Rollup, Schema, Scope};
use crate::value::Value;

/// How a slot stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SlotState {
    /// Nobody ever claimed it.
    #[default]
    Free,
    /// A server holds it.
    Alive,
    /// Its owner ended without giving it back.
    Dead,
    /// Its owner gave it back.
    Released,
}

/// A publication further ahead of the reader's clock than this counts as absent.
const AHEAD_NS: u64 = 1_000_000_000;

/// A u64 per slot and counter.
#[derive(Clone, Debug)]
pub(crate) struct CounterTable {
    layout: Arc<Layout>,
    drained: Vec<u64>,
    single: Vec<u64>,
    /// All zero for sure: the drain of idle servers has nothing to clear.
    blank: bool,
}

impl CounterTable {
    pub(crate) fn new(layout: &Arc<Layout>) -> Self {
        let slots = layout.slot_count as usize;
        CounterTable {
            drained: vec![0; slots * layout.drained.len],
            single: vec![0; slots * layout.single.len],
            blank: true,
            layout: Arc::clone(layout),
        }
    }

    /// A slot's drained and single-writer cells.
    #[inline]
    pub(crate) fn row_mut(&mut self, slot: usize) -> (&mut [u64], &mut [u64]) {
        self.blank = false;
        let (d, s) = (self.layout.drained.len, self.layout.single.len);
        (&mut self.drained[slot * d..][..d], &mut self.single[slot * s..][..s])
    }

    /// The drained cells of all slots, a row each.
    #[inline]
    pub(crate) fn drained_mut(&mut self) -> &mut [u64] {
        self.blank = false;
        &mut self.drained
    }

    pub(crate) fn copy_row(&mut self, from: &CounterTable, slot: usize) {
        self.blank = false;
        let (d, s) = (self.layout.drained.len, self.layout.single.len);
        self.drained[slot * d..][..d].copy_from_slice(&from.drained[slot * d..][..d]);
        self.single[slot * s..][..s].copy_from_slice(&from.single[slot * s..][..s]);
    }

    /// Of one slot, what `now` has more than `before`; nothing where it has less.
    pub(crate) fn set_difference(
        &mut self,
        now: &CounterTable,
        before: &CounterTable,
        slot: usize,
    ) {
        self.blank = false;
        let (d, s) = (self.layout.drained.len, self.layout.single.len);
        for i in slot * d..(slot + 1) * d {
            self.drained[i] = now.drained[i].saturating_sub(before.drained[i]);
        }
        for i in slot * s..(slot + 1) * s {
            self.single[i] = now.single[i].saturating_sub(before.single[i]);
        }
    }

    pub(crate) fn clear(&mut self) {
        if !self.blank {
            self.drained.fill(0);
            self.single.fill(0);
            self.blank = true;
        }
    }

    /// 0 for a gauge.
    pub(crate) fn get(&self, slot: usize, id: RecordId) -> u64 {
        match self.layout.places[id.index()] {
            Place::Drained(n) => self.drained[slot * self.layout.drained.len + n],
            Place::Single(n) => self.single[slot * self.layout.single.len + n],
            Place::Gauge(_) | Place::Field { .. } => 0,
        }
    }

    pub(crate) fn sum(&self, id: RecordId) -> u64 {
        let slots = 0..self.layout.slot_count as usize;
        slots.fold(0, |sum, slot| sum.wrapping_add(self.get(slot, id)))
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.drained.iter().chain(&self.single).all(|n| *n == 0)
    }
}

/// The gauges of every slot as they were read at one time.
#[derive(Clone, Debug)]
pub(crate) struct GaugeTable {
    layout: Arc<Layout>,
    /// Per slot and record.
    pub(crate) words: Vec<Option<u64>>,
    /// Per slot and snapshot: what stands beside a publication that counts.
    pub(crate) stamps: Vec<Option<Stamp>>,
    /// Per slot: the generation of the owner it was read under.
    pub(crate) generations: Vec<u64>,
    /// Per slot: when its server last published or ticked.
    pub(crate) heard: Vec<u64>,
    /// Per snapshot of scope Shared: the slot of the newest publication.
    newest: Vec<Option<usize>>,
    /// When it was read, in nanoseconds of CLOCK_MONOTONIC.
    pub(crate) now: u64,
}

impl GaugeTable {
    pub(crate) fn new(layout: &Arc<Layout>) -> Self {
        let (slots, schema) = (layout.slot_count as usize, &layout.schema);
        GaugeTable {
            words: vec![None; slots * schema.records().len()],
            stamps: vec![None; slots * schema.snapshots().len()],
            generations: vec![0; slots],
            heard: vec![0; slots],
            newest: vec![None; schema.snapshots().len()],
            now: 0,
            layout: Arc::clone(layout),
        }
    }

    fn schema(&self) -> &Schema {
        &self.layout.schema
    }

    /// A slot's words and stamps.
    pub(crate) fn row_mut(&mut self, slot: usize) -> (&mut [Option<u64>], &mut [Option<Stamp>]) {
        let schema = &self.layout.schema;
        let (r, s) = (schema.records().len(), schema.snapshots().len());
        (&mut self.words[slot * r..][..r], &mut self.stamps[slot * s..][..s])
    }

    /// Drops what goes with a slot's owner.
    pub(crate) fn forget_owned(&mut self, slot: usize) {
        let layout = Arc::clone(&self.layout);
        let owned = |scope, lifetime| (scope, lifetime) == (Scope::Server, Lifetime::Owner);
        let (words, stamps) = self.row_mut(slot);
        for (word, record) in words.iter_mut().zip(layout.schema.records()) {
            if owned(record.scope, record.lifetime) {
                *word = None;
            }
        }
        for (stamp, shape) in stamps.iter_mut().zip(layout.schema.snapshots()) {
            if owned(shape.scope, shape.lifetime) {
                *stamp = None;
            }
        }
    }

    /// Drops everything.
    pub(crate) fn forget_all(&mut self) {
        self.words.fill(None);
        self.stamps.fill(None);
        self.newest.fill(None);
        self.heard.fill(0);
    }

    /// How long ago a slot's server last published or ticked.
    pub(crate) fn silent_for(&self, slot: usize) -> Option<Duration> {
        let heard = self.heard[slot];
        (heard != 0).then(|| Duration::from_nanos(self.now.saturating_sub(heard)))
    }

    pub(crate) fn stamp(&self, slot: usize, snapshot: usize) -> Option<Stamp> {
        self.stamps[slot * self.schema().snapshots().len() + snapshot]
    }

    /// Drops what is too old and finds the newest publication of each shared thing.
    pub(crate) fn settle(&mut self) {
        let layout = Arc::clone(&self.layout);
        let slots = layout.slot_count as usize;
        for (n, shape) in layout.schema.snapshots().iter().enumerate() {
            for slot in 0..slots {
                // Of a time to come: given wrongly, and would win for ever.
                let early = |s: Stamp| s.time > self.now.saturating_add(AHEAD_NS);
                let old = |s: Stamp| {
                    let limit = shape.stale_after_ns;
                    limit > 0 && self.now.saturating_sub(s.time) > limit
                };
                if self.stamp(slot, n).is_some_and(|s| early(s) || old(s)) {
                    let (words, stamps) = self.row_mut(slot);
                    stamps[n] = None;
                    words[shape.records.clone()].fill(None);
                }
            }
            if shape.scope == Scope::Shared {
                let stamped = (0..slots).filter_map(|slot| Some((slot, self.stamp(slot, n)?)));
                // The latest; of a tie the larger sequence, then the lower slot.
                let newest = stamped
                    .max_by(|(a, x), (b, y)| (x.time, x.sequence, b).cmp(&(y.time, y.sequence, a)));
                self.newest[n] = newest.map(|(slot, _)| slot);
            }
        }
    }

    /// The slot whose publication of a shared thing is the newest.
    pub(crate) fn newest(&self, snapshot: usize) -> Option<usize> {
        self.newest[snapshot]
    }

    /// A gauge as one slot has it; nothing where it is absent, superseded, or gone with its owner.
    pub(crate) fn get(&self, slot: usize, id: RecordId, states: &[SlotState]) -> Option<Value> {
        let record = &self.schema()[id];
        let Kind::Gauge(value_type) = record.kind else { return None };
        let counts = match (record.scope, record.lifetime, record.snapshot) {
            (Scope::Shared, _, Some(snapshot)) => self.newest[snapshot] == Some(slot),
            (_, Lifetime::Owner, _) => states[slot] == SlotState::Alive,
            _ => true,
        };
        let bits = self.words[slot * self.schema().records().len() + id.index()];
        bits.filter(|_| counts).map(|bits| Value::from_bits(value_type, bits))
    }

    /// The values of a gauge that count, over all slots.
    pub(crate) fn values<'a>(
        &'a self,
        id: RecordId,
        states: &'a [SlotState],
    ) -> impl Iterator<Item = Value> + 'a {
        (0..self.layout.slot_count as usize).filter_map(move |slot| self.get(slot, id, states))
    }

    /// A gauge over all label sets and slots, rolled up as its record says.
    pub(crate) fn rolled_up(&self, name: &str, states: &[SlotState]) -> Option<f64> {
        let schema = self.schema();
        let first = schema.named(name).next()?;
        let values = schema.named(name).flat_map(|id| self.values(id, states));
        roll_up(schema[first].rollup, values.map(Value::as_f64))
    }

    /// A gauge of one record, rolled up over the slots.
    pub(crate) fn rolled_up_of(&self, id: RecordId, states: &[SlotState]) -> Option<f64> {
        roll_up(self.schema()[id].rollup, self.values(id, states).map(Value::as_f64))
    }
}

/// Combines values into one; nothing for none.
pub(crate) fn roll_up(rollup: Rollup, values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut count, mut result) = (0u32, 0.0);
    for value in values {
        result = match rollup {
            _ if count == 0 => value,
            Rollup::Sum | Rollup::Mean => result + value,
            Rollup::Max => f64::max(result, value),
            Rollup::Min => f64::min(result, value),
        };
        count += 1;
    }
    if rollup == Rollup::Mean {
        result /= f64::from(count.max(1));
    }
    (count > 0).then_some(result)
}

#[cfg(test)]
mod tests;
