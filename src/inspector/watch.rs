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
    /// servers as of now. A count is in exactly one interval, whenever the primary drains it. With
    /// nobody attached there are no gauges: they would describe what is not there.
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
        interval.server_count = self.inspector.view.server_count();
        interval.elapsed = Duration::from_nanos(now.saturating_sub(self.at));
        interval.states = observation.states;
        interval.gauges = observation.gauges;
        if !observation.attached {
            interval.gauges.forget_all();
        }
        self.at = now;
        Ok(interval)
    }

    /// The onlooker behind it.
    #[must_use]
    pub fn inspector(&self) -> &Inspector {
        &self.inspector
    }
}

#[cfg(test)]
mod tests {
    use crate::region::Region;
    use crate::schema::{CounterDef, GaugeDef, Schema};
    use crate::table::SlotState;

    #[test]
    fn a_count_is_in_one_interval_whenever_it_is_drained() {
        let schema = Schema::builder("n")
            .counter("a")
            .counter(CounterDef::new("b").single_writer())
            .gauge(GaugeDef::i64("g"))
            .build()
            .unwrap();
        let region = Region::private(&schema, 2);
        let server = region.claim(1).unwrap();
        let (a, mut b) = (server.counter("a").unwrap(), server.single_writer("b").unwrap());
        let mut primary = region.primary().unwrap();
        a.add(100);
        let mut watch = region.inspector().unwrap().watch();
        let mut sums = (0, 0);
        for n in 1..=10 {
            a.add(n);
            b.add(2);
            if n % 3 == 0 {
                drop(primary.drain());
            }
            let interval = watch.interval().unwrap();
            assert_eq!((interval.delta("a"), interval.delta("b")), (n, 2));
            assert_eq!(interval.delta_in(1, schema.find("a", &[]).unwrap()), n);
            assert_eq!(interval.number(), n);
            sums = (sums.0 + interval.delta("a"), sums.1 + interval.delta("b"));
        }
        assert_eq!(sums, (55, 20), "what was counted before the watch began is in none");
        server.gauge::<i64>("g").unwrap().set(5);
        let interval = watch.interval().unwrap();
        assert!(interval.is_idle());
        assert_eq!((interval.gauge("g"), interval.servers(SlotState::Alive)), (Some(5.0), 1));
        // A primary that begins late drains all the same: nothing was taken.
        drop((a, b, server));
        assert_eq!(watch.interval().unwrap().servers(SlotState::Released), 1);
        assert_eq!(primary.drain().delta("a"), 10, "since its last drain");
    }
}
