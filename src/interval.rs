//! What one drain returns: plain values and their arithmetic.

use std::sync::Arc;
use std::time::Duration;

use crate::layout::Layout;
use crate::schema::{RecordId, Schema};
use crate::table::{CounterTable, GaugeTable, SlotState};
use crate::value::Value;

/// What happened between one drain and the one before it.
///
/// Counters are asked for by name, and then summed over their label sets and servers, or by
/// [`RecordId`]. Gauges are rolled up over the servers that count (alive, and have published), or
/// for shared things over the newest publication of each label set.
#[derive(Clone, Debug)]
pub struct Interval {
    pub(crate) layout: Arc<Layout>,
    pub(crate) number: u64,
    pub(crate) elapsed: Duration,
    pub(crate) server_count: u32,
    pub(crate) deltas: CounterTable,
    pub(crate) gauges: GaugeTable,
    pub(crate) states: Vec<SlotState>,
}

impl Interval {
    pub(crate) fn new(layout: &Arc<Layout>) -> Self {
        Interval {
            number: 0,
            elapsed: Duration::ZERO,
            server_count: layout.server_count,
            deltas: CounterTable::new(layout),
            gauges: GaugeTable::new(layout),
            states: vec![SlotState::Free; layout.slot_count as usize],
            layout: Arc::clone(layout),
        }
    }

    /// What is measured.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.layout.schema
    }

    /// Which drain of the region this is, counted from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The real time since the last drain, by whichever primary.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// How many servers were configured.
    #[must_use]
    pub fn server_count(&self) -> u32 {
        self.server_count
    }

    /// How many servers stand so, as of the last [`probe`](crate::Primary::probe).
    #[must_use]
    pub fn servers(&self, state: SlotState) -> usize {
        self.states.iter().filter(|s| **s == state).count()
    }

    /// How each slot stood at the last [`probe`](crate::Primary::probe).
    #[must_use]
    pub fn states(&self) -> &[SlotState] {
        &self.states
    }

    /// How long ago a slot's server last published or ticked; nothing if nobody ever claimed it.
    /// Only a hint: a server that has nothing to do may be silent.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn silent_for(&self, slot: usize) -> Option<Duration> {
        self.gauges.silent_for(slot)
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.deltas.is_zero()
    }

    /// What was counted under this name, over all label sets and servers; 0 for an unknown name.
    #[must_use]
    pub fn delta(&self, name: &str) -> u64 {
        let ids = self.schema().named(name);
        ids.fold(0, |sum, id| sum.wrapping_add(self.deltas.sum(id)))
    }

    /// What was counted in one record, over all servers.
    #[must_use]
    pub fn delta_of(&self, id: RecordId) -> u64 {
        self.deltas.sum(id)
    }

    /// What one slot's server counted in one record.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn delta_in(&self, slot: usize, id: RecordId) -> u64 {
        self.deltas.get(slot, id)
    }

    /// [`delta`](Self::delta) per second; 0 if no time has passed.
    #[must_use]
    pub fn rate(&self, name: &str) -> f64 {
        per_second(self.delta(name), self.elapsed)
    }

    /// [`delta_of`](Self::delta_of) per second; 0 if no time has passed.
    #[must_use]
    pub fn rate_of(&self, id: RecordId) -> f64 {
        per_second(self.delta_of(id), self.elapsed)
    }

    /// The part that `part` has in `whole`, between 0 and 1; nothing if `whole` counted nothing.
    /// A server that counts between the reading of the two cannot push it out of that range.
    #[must_use]
    pub fn ratio(&self, part: &str, whole: &str) -> Option<f64> {
        ratio(self.delta(part), self.delta(whole))
    }

    /// A gauge over all label sets and servers, rolled up as its record says; nothing if none has
    /// a value, or for an unknown name.
    #[must_use]
    pub fn gauge(&self, name: &str) -> Option<f64> {
        self.gauges.rolled_up(name, &self.states)
    }

    /// A gauge of one record, rolled up over all servers; for a shared thing its newest value.
    #[must_use]
    pub fn gauge_of(&self, id: RecordId) -> Option<f64> {
        self.gauges.rolled_up_of(id, &self.states)
    }

    /// A gauge as one slot's server has it; nothing where it is absent, superseded, or gone with
    /// its owner.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn gauge_in(&self, slot: usize, id: RecordId) -> Option<Value> {
        self.gauges.get(slot, id, &self.states)
    }

    /// Of the shared thing that a gauge belongs to: how old its newest publication is.
    #[must_use]
    pub fn age_of(&self, id: RecordId) -> Option<Duration> {
        let snapshot = self.schema()[id].snapshot?;
        let slot = self.gauges.newest(snapshot)?;
        let stamp = self.gauges.stamp(slot, snapshot)?;
        Some(Duration::from_nanos(self.gauges.now.saturating_sub(stamp.time)))
    }
}

pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { count as f64 / elapsed.as_secs_f64() }
}

pub(crate) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64).min(1.0))
}
