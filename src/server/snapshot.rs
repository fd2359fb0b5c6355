//! Handles of snapshots.

use std::marker::PhantomData;
use std::sync::Arc;

use super::{Server, Slot};
use crate::clock;
use crate::error::{Error, Result};
use crate::lease::fork_number;
use crate::protocol::{no_hook, snapshot};
use crate::region::mapping::{Word, Words};
use crate::schema::{Kind, RecordId, labels_text, same_labels};
use crate::sync::Ordering;
use crate::value::GaugeValue;

/// A place in a snapshot; from [`Snapshot::field`].
#[derive(Clone, Copy, Debug)]
pub struct Field<T: GaugeValue> {
    shape: usize,
    index: usize,
    kind: PhantomData<T>,
}

/// A snapshot of one server: values are set here first and published together. In a forked child
/// nothing is published, and the region says that writes were skipped.
#[derive(Debug)]
#[must_use]
pub struct Snapshot {
    words: Words,
    reset: Word,
    values: Box<[u64]>,
    present: u64,
    fork: u64,
    shape: usize,
    slot: Arc<Slot>,
}

impl Snapshot {
    /// The gauge of this name, which has no labels beside the snapshot's own.
    ///
    /// # Errors
    /// [`Error::NoSuchRecord`], also where its type is not `T`.
    pub fn field<T: GaugeValue>(&self, name: &str) -> Result<Field<T>> {
        let schema = self.slot.region.schema();
        let records = &schema.records()[schema.snapshots()[self.shape].records.clone()];
        let position = |kind: Option<Kind>| {
            records.iter().position(|r| r.name == name && kind.is_none_or(|kind| r.kind == kind))
        };
        let index = position(Some(Kind::Gauge(T::TYPE))).ok_or_else(|| Error::NoSuchRecord {
            expected: "gauge of this type in the snapshot",
            name: name.into(),
            labels: String::new(),
            hint: match position(None) {
                Some(i) => format!("it is a {}", records[i].kind),
                None => {
                    format!("it has {}", super::few(records.iter().map(|r| r.name.as_str())))
                }
            },
        })?;
        Ok(Field { shape: self.shape, index, kind: PhantomData })
    }

    /// Sets a value for the publications from now on. NaN is not one, and a field of another
    /// snapshot has no place here: then the write is skipped, and the region says that some were.
    #[inline(always)]
    pub fn set<T: GaugeValue>(&mut self, field: Field<T>, value: T) {
        let place = self.values.get_mut(field.index).filter(|_| field.shape == self.shape);
        match (place, value.to_bits()) {
            (Some(place), Some(bits)) => {
                *place = bits;
                self.present |= 1 << field.index;
            }
            _ => self.slot.skip_write(),
        }
    }

    /// Leaves a value out of the publications from now on.
    pub fn unset<T: GaugeValue>(&mut self, field: Field<T>) {
        if field.shape == self.shape {
            self.present &= !(1 << field.index);
        }
    }

    /// Publishes what was set, as of now.
    #[inline]
    pub fn publish(&mut self) {
        self.publish_at(clock::monotonic_ns());
    }

    /// Publishes what was set, as of `now`: nanoseconds of CLOCK_MONOTONIC
    /// ([`monotonic_ns`](crate::monotonic_ns)). Of several servers' publications of one shared
    /// thing the one with the latest time wins.
    #[inline(always)]
    pub fn publish_at(&mut self, now: u64) {
        // The parent goes on publishing here; two writers would break the sequence.
        if fork_number() != self.fork {
            return self.slot.skip_write();
        }
        let stamp = snapshot::Stamp {
            sequence: 0,
            reset: self.reset.load(Ordering::Relaxed),
            time: now,
            present: self.present,
        };
        snapshot::publish(&self.words, stamp, &self.values, no_hook);
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.slot.return_writer(first_record(&self.slot, self.shape));
    }
}

fn first_record(slot: &Slot, shape: usize) -> RecordId {
    RecordId(slot.region.schema().snapshots()[shape].records.start)
}

impl Server {
    /// The snapshot of this name and these labels.
    ///
    /// # Errors
    /// [`Error::NoSuchRecord`]; [`Error::Held`] while another handle of it is out.
    pub fn snapshot(&self, name: &str, labels: &[(&str, &str)]) -> Result<Snapshot> {
        let shapes = self.region().schema().snapshots();
        let shape = shapes.iter().position(|s| s.name == name && same_labels(&s.labels, labels));
        let shape = shape.ok_or_else(|| Error::NoSuchRecord {
            expected: "snapshot",
            name: name.into(),
            labels: labels_text(labels),
            hint: {
                let all = shapes.iter().map(|s| format!("{}{}", s.name, labels_text(&s.labels)));
                let all: Vec<String> = all.collect();
                format!("the schema has {}", super::few(all.iter().map(String::as_str)))
            },
        })?;
        self.0.take_writer(first_record(&self.0, shape))?;
        let view = self.region().view();
        Ok(Snapshot {
            words: view.snapshot_words(self.0.place(), shape),
            reset: view.reset_word(),
            values: vec![0; shapes[shape].records.len()].into(),
            present: 0,
            fork: self.0.fork(),
            shape,
            slot: Arc::clone(&self.0),
        })
    }
}
