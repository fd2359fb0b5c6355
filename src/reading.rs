//! Filling tables from the mapping: gauges and who is alive. Used by the primary and inspectors.

use std::fs::File;

use crate::clock;
use crate::error::{Error, Result};
use crate::layout::OwnerBlock;
use crate::lease::{self, Seat};
use crate::protocol::{claim, gauge, snapshot};
use crate::region::{SlotView, Slots, View};
use crate::schema::MAX_FIELDS;
use crate::server::STATE_RELEASED;
use crate::sync::{Ordering, fence};
use crate::table::{GaugeTable, SlotState};

/// How often a slot is read again because it changed hands meanwhile.
const CLAIM_TRIES: usize = 16;

/// Who held which slot when it was last asked. Asking costs a system call per slot ever claimed.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) states: Vec<SlotState>,
    generations: Vec<u64>,
}

impl Probe {
    pub(crate) fn new(view: &View) -> Self {
        let slots = view.layout.slot_count as usize;
        Probe { states: vec![SlotState::Free; slots], generations: vec![0; slots] }
    }

    /// Asks the kernel for every slot.
    pub(crate) fn refresh(&mut self, view: &View, file: &File) -> Result<()> {
        for slot in 0..self.states.len() {
            let generation = claim::look(view.slot(slot).generation());
            self.generations[slot] = generation;
            self.states[slot] = if generation == 0 {
                SlotState::Free
            } else if lease::is_held(file, Seat::Slot(slot as u32))
                .map_err(|e| Error::io("ask for the leases of", "the region", e))?
            {
                SlotState::Alive
            } else if view.slot(slot).owner()[OwnerBlock::STATE].load(Ordering::Relaxed)
                == STATE_RELEASED
            {
                SlotState::Released
            } else {
                SlotState::Dead
            };
        }
        Ok(())
    }

    /// The states for gauges that were read later: a slot claimed since is alive.
    #[inline]
    pub(crate) fn states_into(&self, gauges: &GaugeTable, states: &mut [SlotState]) {
        let probed = self.states.iter().zip(&self.generations);
        for ((state, now), (known, then)) in states.iter_mut().zip(&gauges.generations).zip(probed)
        {
            *state = if now == then { *known } else { SlotState::Alive };
        }
    }

    /// Whether a slot's gauges, read earlier, are of the owner that was asked for.
    fn is_of(&self, gauges: &GaugeTable, slot: usize) -> bool {
        gauges.generations[slot] == self.generations[slot]
    }
}

/// Reads every slot's gauges, and then who is alive: no value is given to an owner that claimed
/// its slot after the value was read.
pub(crate) fn observe(
    view: &View,
    file: &File,
    probe: &mut Probe,
    gauges: &mut GaugeTable,
) -> Result<()> {
    let slots = 0..view.layout.slot_count as usize;
    for _ in 0..CLAIM_TRIES {
        read_gauges(view, clock::monotonic_ns(), gauges);
        probe.refresh(view, file)?;
        if slots.clone().all(|slot| probe.is_of(gauges, slot)) {
            return Ok(());
        }
    }
    // Slots that change hands faster than they can be read.
    for slot in slots {
        if !probe.is_of(gauges, slot) {
            gauges.forget_owned(slot);
        }
    }
    Ok(())
}

/// Reads every slot's gauges.
pub(crate) fn read_gauges(view: &View, now: u64, table: &mut GaugeTable) {
    table.now = now;
    let reset = view.reset_number().load(Ordering::Relaxed);
    // Acquire, by a fence: a load with an ordering is not guaranteed on a read-only mapping. Pairs
    // with the raising of the number in `Primary::reset`.
    fence(Ordering::Acquire);
    let slots = view.slots();
    if view.layout.gauge_records.is_empty() && view.layout.snapshots.is_empty() {
        return read_owners(slots, table);
    }
    // Cleared once and not per slot: it is larger than all else that is read of an idle slot.
    let mut values = [0; MAX_FIELDS];
    for slot in 0..slots.count() {
        read_slot(slots.get(slot), slot, reset, table, &mut values);
    }
    table.settle();
}

/// Where no gauge is declared: whose slots they are, and when those were heard of. A claim that
/// comes in between makes a slot look younger than its owner, and nothing else.
fn read_owners(slots: Slots<'_>, table: &mut GaugeTable) {
    let rows = table.generations.iter_mut().zip(&mut table.heard);
    for (owner, (generation, heard)) in slots.owners().zip(rows) {
        *generation = claim::look(&owner[OwnerBlock::GENERATION]);
        *heard = owner[OwnerBlock::HEARTBEAT_AT].load(Ordering::Relaxed);
    }
}

#[inline]
fn read_slot(
    words: SlotView<'_>,
    slot: usize,
    reset: u64,
    table: &mut GaugeTable,
    values: &mut [u64; MAX_FIELDS],
) {
    let generation = words.generation();
    for attempt in 0..CLAIM_TRIES {
        let seen = claim::look(generation);
        table.generations[slot] = seen;
        if seen & 1 == 1 && attempt + 1 < CLAIM_TRIES {
            std::hint::spin_loop();
            continue; // Whatever is read now is not of one owner; the last try reads what is Shared.
        }
        let heartbeat = words.owner()[OwnerBlock::HEARTBEAT_AT].load(Ordering::Relaxed);
        let published = read_words(words, slot, reset, table, values);
        table.heard[slot] = heartbeat.max(published);
        if seen == 0 || claim::still(generation, seen) {
            return;
        }
    }
    // Somebody is (or died) in the middle of a claim: what goes with an owner belongs to nobody.
    table.forget_owned(slot);
}

/// Returns the time of the newest publication.
#[inline]
fn read_words(
    words: SlotView<'_>,
    slot: usize,
    reset: u64,
    table: &mut GaugeTable,
    values: &mut [u64; MAX_FIELDS],
) -> u64 {
    let layout = words.layout;
    let (row, stamps) = table.row_mut(slot);
    for (n, id) in &layout.gauge_records {
        let (value, mark) = words.gauge(*n);
        row[id.index()] = gauge::read(value, mark, reset);
    }
    let mut published = 0;
    for (n, shape) in layout.schema.snapshots().iter().enumerate() {
        let values = &mut values[..shape.records.len()];
        let stamp = snapshot::read(words.snapshot(n), values);
        let stamp = stamp.filter(|stamp| stamp.reset == reset && stamp.present != 0);
        published = published.max(stamp.map_or(0, |stamp| stamp.time));
        stamps[n] = stamp;
        for (field, id) in shape.records.clone().enumerate() {
            let present = stamp.is_some_and(|stamp| stamp.present >> field & 1 == 1);
            row[id] = present.then_some(values[field]);
        }
    }
    published
}
