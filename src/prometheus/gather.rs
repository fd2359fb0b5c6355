//! From what an inspector read to families.

use std::time::Duration;

use super::Options;
use super::family::{Families, Family, FamilyKind, Labels, Sample};
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
            for (server, value) in samples {
                let mut labels = record.labels.clone();
                labels.extend(server.map(|slot| ("server".into(), slot.to_string())));
                self.add(family, kind, labels, value);
            }
        }
    }

    /// Totals by slot, or over all.
    fn counts(&self, id: RecordId) -> Vec<(Option<usize>, Value)> {
        let totals = self.inspector.last_totals();
        if self.options.sum {
            let known = self.slots().all(|slot| totals.is_known(slot));
            return known.then(|| (None, Value::U64(totals.of(id)))).into_iter().collect();
        }
        let used = |slot: &usize| {
            totals.is_known(*slot) && self.observation.states[*slot] != SlotState::Free
        };
        let total = |slot| (Some(slot), Value::U64(totals.in_slot(slot, id)));
        self.slots().filter(used).map(total).collect()
    }

    /// Values by slot; over all; or of a shared thing.
    fn gauges(&self, id: RecordId) -> Vec<(Option<usize>, Value)> {
        let schema = self.inspector.schema();
        if !self.observation.attached {
            return Vec::new();
        }
        let value = |slot| self.observation.gauge_in(slot, id).map(|value| (slot, value));
        match (schema[id].scope, self.options.sum) {
            (Scope::Shared, _) => {
                self.slots().filter_map(value).map(|(_, value)| (None, value)).collect()
            }
            (Scope::Server, false) => {
                self.slots().filter_map(value).map(|(slot, value)| (Some(slot), value)).collect()
            }
            (Scope::Server, true) => {
                let value = self.observation.gauge_of(schema, id);
                value.map(|value| (None, Value::F64(value))).into_iter().collect()
            }
        }
    }

    fn add(&mut self, family: usize, kind: FamilyKind, mut labels: Labels, value: Value) {
        labels.extend(self.shm_region.map(|name| ("shm_region".into(), name.into())));
        let created = (kind == FamilyKind::Counter).then_some(self.created);
        self.families.add(self.number, family, Sample { labels, value, created });
    }

    /// One sample of the region's own.
    fn own(&mut self, kind: FamilyKind, name: &str, help: &str, labels: Labels, value: Value) {
        let unit = if name.ends_with("_seconds") { "seconds" } else { "" };
        let head = Family::new(kind, &format!("shmstats_{name}"), unit, help);
        if let Some(family) = self.families.family(self.number, head) {
            self.add(family, kind, labels, value);
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
        for slot in self.slots() {
            let heard = self.observation.owners[slot].heard;
            if let (SlotState::Alive, Some(age)) = (self.observation.states[slot], heard) {
                let labels = vec![("server".into(), slot.to_string())];
                let help = "Time since a living server last published or ticked";
                self.own(FamilyKind::Gauge, "server_silent_seconds", help, labels, age_of(age));
            }
        }
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
