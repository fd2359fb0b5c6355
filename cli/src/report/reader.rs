//! From what an inspector sees to a report.

use std::time::{Duration, SystemTime};

use shmstats::schema::{CounterMode, Kind, Lifetime, RecordId, Rollup, Scope, ValueType};
use shmstats::{Inspector, Observation, SlotState, Value};

use super::*;
use crate::find::Opened;

fn state_word(state: SlotState) -> &'static str {
    match state {
        SlotState::Free => "free",
        SlotState::Alive => "alive",
        SlotState::Dead => "dead",
        SlotState::Released => "released",
        _ => "unknown",
    }
}

fn rollup_word(rollup: Rollup) -> &'static str {
    match rollup {
        Rollup::Sum => "sum",
        Rollup::Mean => "mean",
        Rollup::Max => "max",
        Rollup::Min => "min",
    }
}

fn kind_words(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Counter(CounterMode::Drained) => ("counter", "drained"),
        Kind::Counter(CounterMode::SingleWriter) => ("counter", "single_writer"),
        Kind::Gauge(ValueType::U64) => ("gauge", "u64"),
        Kind::Gauge(ValueType::I64) => ("gauge", "i64"),
        Kind::Gauge(ValueType::F64) => ("gauge", "f64"),
        _ => ("unknown", "unknown"),
    }
}

fn scope_word(scope: Scope) -> &'static str {
    match scope {
        Scope::Server => "server",
        Scope::Shared => "shared",
    }
}

fn lifetime_word(lifetime: Lifetime) -> &'static str {
    match lifetime {
        Lifetime::Owner => "owner",
        Lifetime::Region => "region",
    }
}

fn seconds(age: Option<Duration>) -> Option<f64> {
    age.map(|age| age.as_secs_f64())
}

fn labels(pairs: &[(String, String)]) -> Labels {
    pairs.iter().cloned().collect()
}

impl Report {
    /// Reads the totals of a region that has just been opened or observed.
    pub(crate) fn new(opened: &mut Opened) -> Self {
        opened.inspector.totals();
        Reader { inspector: &opened.inspector, observation: &opened.observation }.report()
    }
}

struct Reader<'a> {
    inspector: &'a Inspector,
    observation: &'a Observation,
}

impl Reader<'_> {
    fn report(&self) -> Report {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (info, seen) = (self.inspector.region(), self.observation);
        let slots: Vec<Slot> = (0..seen.states.len()).map(|slot| self.slot(slot)).collect();
        let count = |state| seen.states.iter().filter(|s| **s == state).count();
        Report {
            shape: SHAPE,
            path: self.inspector.path().display().to_string(),
            read_at: now.as_secs_f64(),
            region: Region {
                format_version: info.format_version,
                file_size: info.file_size,
                servers_configured: info.server_count,
                slot_count: info.slot_count,
                slot_size: info.slot_size,
                created_at: info.created_at.as_secs_f64(),
                live: seen.attached,
                this_boot: seen.this_boot,
                at_its_path: self.inspector.is_at_its_path(),
            },
            schema: self.schema(),
            servers: Servers {
                configured: info.server_count,
                alive: count(SlotState::Alive),
                dead: count(SlotState::Dead),
                released: count(SlotState::Released),
                stopped: slots.iter().filter(|slot| slot.stopped).count(),
                free_slots: count(SlotState::Free),
            },
            primary: Primary {
                alive: seen.primary.alive,
                pid: Some(seen.primary.pid).filter(|pid| *pid != 0),
                takeovers: seen.primary.takeovers,
                drains: seen.primary.drains,
                last_drain_age_seconds: seconds(seen.primary.drained),
            },
            health: Health {
                settled: self.inspector.last_totals().all_settled(),
                interrupted_drains: seen.interrupted_drains,
                refused_servers: seen.refused_servers,
                skipped_writes: seen.skipped_writes,
                counters_behind: seen.primary.behind,
                resets: seen.reset_number,
                last_reset_age_seconds: seconds(seen.reset_age),
            },
            slots,
            counters: self.ids(Kind::is_counter).map(|id| self.counter(id)).collect(),
            gauges: self
                .ids(|kind| !kind.is_counter())
                .filter(|id| self.inspector.schema()[*id].scope == Scope::Server)
                .map(|id| self.gauge(id))
                .collect(),
            shared: self.shared(),
            rollups: self.rollups(),
        }
    }

    fn ids(&self, which: impl Fn(Kind) -> bool) -> impl Iterator<Item = RecordId> {
        let schema = self.inspector.schema();
        schema.ids().filter(move |id| which(schema[*id].kind))
    }

    fn schema(&self) -> Schema {
        let schema = self.inspector.schema();
        Schema {
            namespace: schema.namespace().into(),
            hash: format!("{:#010x}", self.inspector.region().schema_hash),
            records: schema
                .records()
                .iter()
                .map(|record| {
                    let (kind, variant) = kind_words(record.kind);
                    Record {
                        name: record.name.clone(),
                        labels: labels(&record.labels),
                        kind,
                        variant,
                        unit: record.unit.clone(),
                        help: record.help.clone(),
                        rollup: rollup_word(record.rollup),
                        scope: scope_word(record.scope),
                        lifetime: lifetime_word(record.lifetime),
                        snapshot: record.snapshot,
                    }
                })
                .collect(),
            snapshots: schema
                .snapshots()
                .iter()
                .map(|shape| Snapshot {
                    name: shape.name.clone(),
                    labels: labels(&shape.labels),
                    scope: scope_word(shape.scope),
                    lifetime: lifetime_word(shape.lifetime),
                    stale_after_seconds: (shape.stale_after_ns > 0)
                        .then(|| Duration::from_nanos(shape.stale_after_ns).as_secs_f64()),
                })
                .collect(),
        }
    }

    fn slot(&self, slot: usize) -> Slot {
        let (state, owner) = (self.observation.states[slot], &self.observation.owners[slot]);
        let claimed = state != SlotState::Free;
        Slot {
            slot,
            state: state_word(state),
            stopped: state == SlotState::Alive && owner.is_stopped(),
            server_index: owner.server_index.filter(|_| claimed),
            pid: claimed.then_some(owner.pid),
            generation: owner.generation,
            claimed_age_seconds: seconds(owner.claimed).filter(|_| claimed),
            silent_seconds: seconds(owner.heard).filter(|_| claimed),
            settled: self.inspector.last_totals().is_settled(slot),
        }
    }

    /// The slots that anyone ever claimed.
    fn used(&self) -> impl Iterator<Item = usize> {
        let states = self.observation.states.iter().enumerate();
        states.filter(|(_, state)| **state != SlotState::Free).map(|(slot, _)| slot)
    }

    fn counter(&self, id: RecordId) -> Counter {
        let (record, totals) = (&self.inspector.schema()[id], self.inspector.last_totals());
        let in_slot = |slot| CountInSlot {
            slot,
            total: totals.in_slot(slot, id),
            pending: totals.pending_in(slot, id),
        };
        Counter {
            name: record.name.clone(),
            labels: labels(&record.labels),
            unit: record.unit.clone(),
            total: totals.of(id),
            pending: totals.pending(id),
            by_slot: self.used().map(in_slot).collect(),
        }
    }

    fn gauge(&self, id: RecordId) -> Gauge {
        let schema = self.inspector.schema();
        let value = |slot| {
            let value = self.observation.gauge_in(slot, id)?;
            Some(ValueInSlot { slot, value: Number(value) })
        };
        let record = &schema[id];
        Gauge {
            name: record.name.clone(),
            labels: labels(&record.labels),
            unit: record.unit.clone(),
            rollup: rollup_word(record.rollup),
            value: self.observation.gauge_of(id).map(Value::F64).map(Number),
            by_slot: self.used().filter_map(value).collect(),
        }
    }

    fn shared(&self) -> Vec<Shared> {
        let schema = self.inspector.schema();
        let ids: Vec<RecordId> = schema.ids().collect();
        let shapes = schema.snapshots().iter().enumerate();
        shapes
            .filter(|(_, shape)| shape.scope == Scope::Shared)
            .map(|(n, shape)| {
                let newest = self.observation.newest(n);
                let value = |id: &RecordId| {
                    let record = &schema[*id];
                    let slot = newest.map(|(slot, _)| slot);
                    let value = slot.and_then(|slot| self.observation.gauge_in(slot, *id));
                    let own = record.labels.iter().filter(|pair| !shape.labels.contains(pair));
                    Named {
                        name: record.name.clone(),
                        labels: own.cloned().collect(),
                        unit: record.unit.clone(),
                        value: value.map(Number),
                    }
                };
                Shared {
                    snapshot: shape.name.clone(),
                    labels: labels(&shape.labels),
                    age_seconds: newest.map(|(_, age)| age.as_secs_f64()),
                    slot: newest.map(|(slot, _)| slot),
                    values: ids[shape.records.clone()].iter().map(value).collect(),
                }
            })
            .collect()
    }

    fn rollups(&self) -> Vec<Family> {
        let mut families: Vec<Family> = Vec::new();
        for record in self.inspector.schema().records() {
            if families.iter().any(|family| family.name == record.name) {
                continue;
            }
            let value = match record.kind {
                Kind::Counter(_) => {
                    Some(Value::U64(self.inspector.last_totals().get(&record.name)))
                }
                _ => self.observation.gauge(&record.name).map(Value::F64),
            };
            families.push(Family {
                name: record.name.clone(),
                kind: kind_words(record.kind).0,
                unit: record.unit.clone(),
                rollup: rollup_word(record.rollup),
                value: value.map(Number),
            });
        }
        families
    }
}
