//! From what an inspector read to families.

use std::time::Duration;

use super::Options;
use super::family::{Families, Family, FamilyKind, Group, Labels, Sample};
use crate::inspector::{Inspector, Observation};
use crate::schema::{Kind, RecordId, Scope};
use crate::table::SlotState;
use crate::value::Value;

/// Adds one region, whose totals have just been read.
pub(super) fn region(
    families: &mut Families,
    options: Options,
    inspector: &Inspector,
    observation: &Observation,
    shm_region: Option<&str>,
) {
    let created = inspector.region().created_at.as_secs_f64();
    let number = families.next_region();
    let mut gatherer =
        Gatherer { families, options, inspector, observation, shm_region, created, number };
    gatherer.records();
    gatherer.health();
}

struct Gatherer<'a> {
    families: &'a mut Families,
    options: Options,
    inspector: &'a Inspector,
    observation: &'a Observation,
    shm_region: Option<&'a str>,
    created: f64,
    number: usize,
}

impl Gatherer<'_> {
    fn slots(&self) -> impl Iterator<Item = usize> + use<> {
        0..self.observation.states.len()
    }

    fn records(&mut self) {
        let schema = self.inspector.schema().clone();
        for id in schema.ids() {
            let record = &schema[id];
            let kind = match record.kind {
                Kind::Counter(_) => FamilyKind::Counter,
                Kind::Gauge(_) => FamilyKind::Gauge,
            };
            let name = format!("{}_{}", schema.namespace(), record.name);
            let head = Family::new(kind, &name, &record.unit, &record.help);
            let Some(family) = self.families.family(self.number, head) else { continue };
            let samples = match kind {
                FamilyKind::Counter => self.counts(id),
                FamilyKind::Gauge => self.gauges(id),
            };
            self.add(family, kind, record.labels.clone(), samples);
        }
    }

    /// Totals by slot, or over all.
    fn counts(&self, id: RecordId) -> Vec<Sample> {
        let totals = self.inspector.last_totals();
        if self.options.sum {
            let known = self.slots().all(|slot| totals.is_known(slot));
            let sum = || Sample { server: None, value: Value::U64(totals.of(id)) };
            return known.then(sum).into_iter().collect();
        }
        let used = |slot: &usize| {
            totals.is_known(*slot) && self.observation.states[*slot] != SlotState::Free
        };
        let total =
            |slot| Sample { server: Some(slot), value: Value::U64(totals.in_slot(slot, id)) };
        let mut samples = Vec::with_capacity(self.observation.states.len());
        samples.extend(self.slots().filter(used).map(total));
        samples
    }

    /// Values by slot; over all; or of a shared thing.
    fn gauges(&self, id: RecordId) -> Vec<Sample> {
        let schema = self.inspector.schema();
        if !self.observation.attached {
            return Vec::new();
        }
        let shared = schema[id].scope == Scope::Shared;
        if self.options.sum && !shared {
            let value = self.observation.gauge_of(id).map(Value::F64);
            return value.map(|value| Sample { server: None, value }).into_iter().collect();
        }
        let sample = |slot| {
            let value = self.observation.gauge_in(slot, id)?;
            Some(Sample { server: (!shared).then_some(slot), value })
        };
        self.slots().filter_map(sample).collect()
    }

    fn add(&mut self, family: usize, kind: FamilyKind, labels: Labels, samples: Vec<Sample>) {
        let created = (kind == FamilyKind::Counter).then_some(self.created);
        let shm_region = self.shm_region.map(String::from);
        self.families.add(self.number, family, Group { labels, shm_region, created, samples });
    }

    /// One sample of the region's own.
    fn own(&mut self, kind: FamilyKind, name: &str, help: &str, labels: Labels, value: Value) {
        self.own_samples(kind, name, help, labels, vec![Sample { server: None, value }]);
    }

    fn own_samples(
        &mut self,
        kind: FamilyKind,
        name: &str,
        help: &str,
        labels: Labels,
        samples: Vec<Sample>,
    ) {
        let unit = if name.ends_with("_seconds") { "seconds" } else { "" };
        let head = Family::new(kind, &format!("shmstats_{name}"), unit, help);
        if let Some(family) = self.families.family(self.number, head) {
            self.add(family, kind, labels, samples);
        }
    }

    fn health(&mut self) {
        use FamilyKind::{Counter, Gauge};
        let observation = self.observation;
        let totals = self.inspector.last_totals();
        let unsettled = self.slots().filter(|slot| !totals.is_settled(*slot)).count();
        let region = self.inspector.region();
        let primary = &observation.primary;
        for (state, word) in [
            (SlotState::Alive, "alive"),
            (SlotState::Dead, "dead"),
            (SlotState::Released, "released"),
        ] {
            let count = observation.states.iter().filter(|s| **s == state).count();
            let labels = vec![("state".into(), word.into())];
            self.own(
                Gauge,
                "servers",
                "Slots by the state of their owner",
                labels,
                count_of(count),
            );
        }
        for (kind, name, help, value) in [
            (Gauge, "servers_configured", "Servers configured", u64::from(region.server_count)),
            (Gauge, "attached", "Whether any process is attached", observation.attached.into()),
            (Gauge, "primary_alive", "Whether a process is primary", primary.alive.into()),
            (Counter, "primary_takeovers", "How often a process became primary", primary.takeovers),
            (Counter, "drains", "How often the primary read and reset counters", primary.drains),
            (
                Counter,
                "interrupted_drains",
                "Drains that a primary died in: at most one counter's last delta is missing of each",
                observation.interrupted_drains,
            ),
            (
                Counter,
                "refused_servers",
                "Servers that found no free slot",
                observation.refused_servers,
            ),
            (
                Counter,
                "skipped_writes",
                "Writes that were not done: by forked children, or of NaN",
                observation.skipped_writes,
            ),
            (
                Counter,
                "resets",
                "Resets, and boots the region was used in",
                observation.reset_number,
            ),
            (Gauge, "unsettled_slots", "Slots whose totals are not sure now", unsettled as u64),
        ] {
            self.own(kind, name, help, Labels::new(), Value::U64(value));
        }
        if let Some(age) = primary.drained {
            self.own(
                Gauge,
                "last_drain_age_seconds",
                "Time since the last drain",
                vec![],
                age_of(age),
            );
        }
        self.silences();
        self.ages();
    }

    fn silences(&mut self) {
        let silence = |slot: usize| {
            let heard = self.observation.owners[slot].heard?;
            let alive = self.observation.states[slot] == SlotState::Alive;
            alive.then_some(Sample { server: Some(slot), value: age_of(heard) })
        };
        let samples = self.slots().filter_map(silence).collect();
        let help = "Time since a living server last published or ticked";
        self.own_samples(FamilyKind::Gauge, "server_silent_seconds", help, vec![], samples);
    }

    fn ages(&mut self) {
        if !self.observation.attached {
            return;
        }
        let schema = self.inspector.schema().clone();
        for (n, shape) in schema.snapshots().iter().enumerate() {
            let Some((_, age)) = self.observation.newest(n) else { continue };
            let mut labels = shape.labels.clone();
            if labels.iter().all(|(key, _)| key != "snapshot") {
                labels.push(("snapshot".into(), shape.name.clone()));
            }
            let help = "Time since the newest publication of a shared snapshot";
            self.own(FamilyKind::Gauge, "snapshot_age_seconds", help, labels, age_of(age));
        }
    }
}

fn count_of(n: usize) -> Value {
    Value::U64(n as u64)
}

fn age_of(age: Duration) -> Value {
    Value::F64(age.as_secs_f64())
}
