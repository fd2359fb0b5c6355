//! The one process that drains.

use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::error::Result;
use crate::interval::Interval;
use crate::layout::{PrimaryBlock, RegionBlock};
use crate::lease::Seat;
use crate::owner::{self, Owner};
use crate::protocol::{ledger, no_hook};
use crate::reading::{Probe, read_gauges};
use crate::region::{Region, Slots, View, refused};
use crate::sync::Ordering;
use crate::table::{CounterTable, SlotState};

/// The holder of the primary lease: drains counters into intervals. Dropping it lets another
/// process be primary.
#[derive(Debug)]
pub struct Primary {
    region: Region,
    probe: Probe,
}

impl Region {
    /// Takes the primary lease, and settles what a primary that was killed in the middle of a
    /// drain left behind.
    ///
    /// # Errors
    /// [`Error::Held`](crate::Error::Held) while another process, or this one, is primary.
    pub fn primary(&self) -> Result<Primary> {
        Primary::take(self, no_hook)
    }
}

impl Primary {
    pub(crate) fn take(region: &Region, hook: impl Fn(&'static str) + Copy) -> Result<Self> {
        let region = region.of_this_process()?;
        let seat = region.lease().sit(Seat::Primary, Duration::ZERO);
        seat.map_err(|e| refused(e, region.path(), "the primary lease"))?;
        let mut primary = Primary { probe: Probe::new(region.view()), region };
        primary.take_over(hook);
        primary.probe()?;
        Ok(primary)
    }

    fn take_over(&self, hook: impl Fn(&'static str) + Copy) {
        let view = self.view();
        let block = view.primary_block();
        let slots = 0..view.layout.slot_count as usize;
        let interrupted =
            slots.filter(|slot| ledger::take_over(view.slot(*slot).books(), hook)).count();
        if interrupted > 0 {
            let count = &view.region_block()[RegionBlock::INTERRUPTED_DRAINS];
            count.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                path = %self.region.path().display(),
                "the last primary died in the middle of a drain: at most one counter's last \
                 delta is missing from the totals"
            );
        }
        let (pid, start_time) = clock::myself();
        // Relaxed: only the lease's holder writes this block; others show it to people.
        for (word, value) in [
            (PrimaryBlock::PID, pid),
            (PrimaryBlock::START_TIME, start_time),
            (PrimaryBlock::CLAIMED_AT, clock::monotonic_ns()),
        ] {
            block[word].store(value, Ordering::Relaxed);
        }
        block[PrimaryBlock::GENERATION].fetch_add(1, Ordering::Relaxed);
    }

    fn view(&self) -> &View {
        self.region.view()
    }

    /// The region it drains.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// An empty interval of the right size, to drain into again and again.
    #[must_use]
    pub fn interval(&self) -> Interval {
        Interval::new(&self.view().layout)
    }

    /// Reads and resets all counters, and reads the gauges. Everything counted is in exactly one
    /// interval. No system call, and no allocation if `interval` has been used for this region.
    ///
    /// Who is alive is taken from the last [`probe`](Self::probe).
    #[inline]
    pub fn drain_into(&mut self, interval: &mut Interval) {
        self.drain_with(interval, no_hook);
    }

    /// As [`drain_into`](Self::drain_into), into a new interval.
    #[must_use = "what was drained is in no other interval"]
    pub fn drain(&mut self) -> Interval {
        let mut interval = self.interval();
        self.drain_into(&mut interval);
        interval
    }

    pub(crate) fn drain_with(
        &mut self,
        interval: &mut Interval,
        hook: impl Fn(&'static str) + Copy,
    ) {
        self.fit(interval);
        if !self.region.lease().is_mine() {
            // A forked child inherited this handle; the parent is the primary.
            interval.deltas.clear();
            return;
        }
        let view = self.view();
        let block = view.primary_block();
        let now = clock::monotonic_ns();
        interval.elapsed = self.since_last(now);
        let mut behind = 0;
        interval.deltas.clear();
        // Single-writer counters first, as readers of totals do: they may count effects of what
        // drained ones count (P1).
        if view.layout.single.len > 0 {
            for slot in 0..view.layout.slot_count as usize {
                let (_, single) = interval.deltas.row_mut(slot);
                behind += ledger::advance_watermarks(view.slot(slot).books(), single);
            }
        }
        drain_pending(view.slots(), &mut interval.deltas, hook);
        // Relaxed, here and below: written by the primary alone, shown to people, and read by the
        // next primary, whom the lease orders.
        let number = block[PrimaryBlock::DRAINS].load(Ordering::Relaxed).wrapping_add(1);
        block[PrimaryBlock::DRAINS].store(number, Ordering::Relaxed);
        block[PrimaryBlock::DRAINED_AT].store(now, Ordering::Relaxed);
        if behind > 0 {
            block[PrimaryBlock::BEHIND].fetch_add(behind, Ordering::Relaxed);
        }
        interval.number = number;
        self.read_gauges_into(interval, now);
    }

    /// What a drain would return now, without resetting anything.
    #[must_use]
    pub fn peek(&self) -> Interval {
        let mut interval = self.interval();
        let view = self.view();
        let now = clock::monotonic_ns();
        interval.elapsed = self.since_last(now);
        interval.number = view.primary_block()[PrimaryBlock::DRAINS].load(Ordering::Relaxed);
        for slot in 0..view.layout.slot_count as usize {
            let (drained, single) = interval.deltas.row_mut(slot);
            ledger::peek(view.slot(slot).books(), drained, single);
        }
        self.read_gauges_into(&mut interval, now);
        interval
    }

    /// Asks the kernel who is alive: one system call per slot that was ever claimed.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) where it will not tell.
    pub fn probe(&mut self) -> Result<&[SlotState]> {
        self.probe.refresh(self.region.view(), self.region.file())?;
        Ok(&self.probe.states)
    }

    /// Who claimed a slot last, as of an interval that was drained or peeked here; tells also
    /// whether its process is stopped.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn owner(&self, slot: usize, interval: &Interval) -> Owner {
        owner::read(self.view(), slot, Some(interval.gauges.now), &interval.gauges)
    }

    /// Forgets pending counts and hides all gauges until they are set or published again. Totals
    /// stay: what is pending goes to them, and into no interval.
    pub fn reset(&mut self) {
        self.reset_with(no_hook);
    }

    pub(crate) fn reset_with(&mut self, hook: impl Fn(&'static str) + Copy) {
        if !self.region.lease().is_mine() {
            return; // A forked child: the parent is the primary.
        }
        let mut discarded = self.interval();
        self.drain_with(&mut discarded, hook);
        hook("reset: after drain");
        let block = self.view().region_block();
        block[RegionBlock::RESET_AT].store(clock::monotonic_ns(), Ordering::Relaxed);
        hook("reset: after time");
        // Release: a reader that sees the new number sees what was drained before it.
        block[RegionBlock::RESET_NUMBER].fetch_add(1, Ordering::Release);
        hook("reset: after number");
    }

    fn fit(&self, interval: &mut Interval) {
        if !Arc::ptr_eq(&interval.layout, &self.view().layout) {
            *interval = self.interval();
        }
    }

    fn read_gauges_into(&self, interval: &mut Interval, now: u64) {
        interval.server_count = self.view().server_count();
        read_gauges(self.view(), now, &mut interval.gauges);
        self.probe.states_into(&interval.gauges, &mut interval.states);
    }

    /// Time since the last drain of any primary, or since the region began; never negative.
    fn since_last(&self, now: u64) -> Duration {
        let drained_at =
            self.view().primary_block()[PrimaryBlock::DRAINED_AT].load(Ordering::Relaxed);
        let reset_at = self.view().region_block()[RegionBlock::RESET_AT].load(Ordering::Relaxed);
        Duration::from_nanos(now.saturating_sub(drained_at.max(reset_at)))
    }
}

/// Drains every slot that has something pending.
#[inline(always)]
fn drain_pending(slots: Slots<'_>, deltas: &mut CounterTable, hook: impl Fn(&'static str)) {
    let mut slot = 0;
    loop {
        while slot < slots.count() && ledger::is_idle(slots.pending(slot)) {
            slot += 1;
        }
        if slot == slots.count() {
            return;
        }
        // Every place is overwritten before it is read; the first stands for none yet.
        let mut batch = [(slot, slots.get(slot).books()); ledger::BATCH];
        let mut len = 0;
        while slot < slots.count() && len < ledger::BATCH {
            if !ledger::is_idle(slots.pending(slot)) {
                batch[len] = (slot, slots.get(slot).books());
                len += 1;
            }
            slot += 1;
        }
        let table = deltas.drained_mut();
        ledger::drain(&batch[..len], |cell, n| table[cell] = n, &hook);
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        self.region.lease().stand(Seat::Primary);
    }
}
