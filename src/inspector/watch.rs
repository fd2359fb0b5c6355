//! Intervals from outside: what a primary's drain would say, without draining.

use std::time::Duration;

use super::Inspector;
use crate::clock;
use crate::error::Result;
use crate::interval::Interval;
use crate::table::CounterTable;

/// An onlooker that asks for intervals: what was counted between one call and the next, by the
/// region's totals. The primary goes on as if nobody looked.
#[derive(Debug)]
pub struct Watch {
    inspector: Inspector,
    /// The totals that are in an interval already.
    told: CounterTable,
    /// Which slots of `told` are totals, and not zeros from before the first sure reading.
    begun: Vec<bool>,
    at: u64,
    number: u64,
}

impl Inspector {
    /// Watches the region from now on.
    #[must_use]
    pub fn watch(mut self) -> Watch {
        self.totals();
        let at = clock::monotonic_ns();
        let begun = self.totals.ever_settled.clone();
        Watch { told: self.totals.counts.clone(), begun, at, number: 0, inspector: self }
    }
}

impl Watch {
    /// What was counted since the last call, or since [`Inspector::watch`], and the gauges and
    /// servers as of now. A count is in exactly one interval, whenever the primary drains it.
    ///
    /// # Errors
    /// As [`Inspector::observe`]; then nothing is taken.
    pub fn interval(&mut self) -> Result<Interval> {
        let observation = self.inspector.observe()?;
        let now = clock::monotonic_ns();
        self.inspector.totals();
        let totals = &self.inspector.totals;
        let mut interval = Interval::new(&self.inspector.view.layout);
        for slot in 0..self.begun.len() {
            if self.begun[slot] {
                interval.deltas.set_difference(&totals.counts, &self.told, slot);
            }
            if totals.ever_settled[slot] {
                self.told.copy_row(&totals.counts, slot);
                self.begun[slot] = true;
            }
        }
        self.number += 1;
        interval.number = self.number;
        interval.elapsed = Duration::from_nanos(now.saturating_sub(self.at));
        interval.states = observation.states;
        interval.gauges = observation.gauges;
        self.at = now;
        Ok(interval)
    }

    /// The onlooker behind it.
    #[must_use]
    pub fn inspector(&self) -> &Inspector {
        &self.inspector
    }
}
