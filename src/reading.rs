//! Filling tables from the mapping: gauges and who is alive. Used by the primary and inspectors.

use std::fs::File;

use crate::clock;
use crate::error::{Error, Result};
use crate::layout::{OwnerBlock, Place};
use crate::lease::{self, Seat};
use crate::protocol::{claim, gauge, snapshot};
use crate::region::View;
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
            let generation = claim::look(view.generation(slot));
            self.generations[slot] = generation;
            self.states[slot] = if generation == 0 {
                SlotState::Free
            } else if lease::is_held(file, Seat::Slot(slot as u32))
                .map_err(|e| Error::io("ask for the leases of", "the region", e))?
            {
                SlotState::Alive
            } else if view.owner(slot)[OwnerBlock::STATE].load(Ordering::Relaxed) == STATE_RELEASED
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
        for (slot, state) in states.iter_mut().enumerate() {
            *state = match self.states[slot] {
                known if gauges.generations[slot] == self.generations[slot] => known,
                _ => SlotState::Alive,
            };
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
    for slot in 0..view.layout.slot_count as usize {
        read_slot(view, slot, reset, table);
    }
    table.settle();
}

fn read_slot(view: &View, slot: usize, reset: u64, table: &mut GaugeTable) {
    let generation = view.generation(slot);
    for _ in 0..CLAIM_TRIES {
        let seen = claim::look(generation);
        table.generations[slot] = seen;
        read_words(view, slot, reset, table);
        if seen == 0 || claim::still(generation, seen) {
            return;
        }
    }
    // Somebody is (or died) in the middle of a claim: what goes with an owner belongs to nobody.
    table.forget_owned(slot);
}

fn read_words(view: &View, slot: usize, reset: u64, table: &mut GaugeTable) {
    let layout = &*view.layout;
    let mut heard = view.owner(slot)[OwnerBlock::HEARTBEAT_AT].load(Ordering::Relaxed);
    let (words, stamps) = table.row_mut(slot);
    for (word, place) in words.iter_mut().zip(&layout.places) {
        if let Place::Gauge(n) = *place {
            let (value, mark) = view.gauge(slot, n);
            *word = gauge::read(value, mark, reset);
        }
    }
    let mut values = [0; MAX_FIELDS];
    for (n, shape) in layout.schema.snapshots().iter().enumerate() {
        let values = &mut values[..shape.records.len()];
        let stamp = snapshot::read(view.snapshot(slot, n), values);
        let stamp = stamp.filter(|stamp| stamp.reset == reset && stamp.present != 0);
        heard = heard.max(stamp.map_or(0, |stamp| stamp.time));
        stamps[n] = stamp;
        for (field, id) in shape.records.clone().enumerate() {
            let present = stamp.is_some_and(|stamp| stamp.present >> field & 1 == 1);
            words[id] = present.then_some(values[field]);
        }
    }
    table.heard[slot] = heard;
}
