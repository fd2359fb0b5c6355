//! Handles of gauges that stand alone.

use std::marker::PhantomData;
use std::sync::Arc;

use super::{Server, Slot};
use crate::error::Result;
use crate::lease::fork_number;
use crate::protocol::gauge;
use crate::region::mapping::Word;
use crate::schema::Kind;
use crate::value::GaugeValue;

/// A gauge of one server. Any thread may set it; clones set the same cell. In a forked child it
/// sets nothing, and the region says that writes were skipped.
#[derive(Debug)]
#[must_use]
pub struct Gauge<T: GaugeValue> {
    value: Word,
    mark: Word,
    reset: Word,
    fork: u64,
    slot: Arc<Slot>,
    kind: PhantomData<T>,
}

impl<T: GaugeValue> Clone for Gauge<T> {
    fn clone(&self) -> Self {
        Gauge {
            value: self.value.clone(),
            mark: self.mark.clone(),
            reset: self.reset.clone(),
            fork: self.fork,
            slot: Arc::clone(&self.slot),
            kind: PhantomData,
        }
    }
}

impl<T: GaugeValue> Gauge<T> {
    /// Replaces the value. NaN is not one: it is skipped, and the region says that writes were.
    #[inline(always)]
    pub fn set(&self, value: T) {
        match value.to_bits() {
            Some(bits) if fork_number() == self.fork => {
                gauge::set(&self.value, &self.mark, &self.reset, bits);
            }
            _ => self.slot.skip_write(),
        }
    }
}

impl Gauge<i64> {
    /// Adds to the value, which begins at 0.
    #[inline(always)]
    pub fn add(&self, n: i64) {
        if fork_number() != self.fork {
            return self.slot.skip_write();
        }
        gauge::add(&self.value, &self.mark, &self.reset, n);
    }

    /// Takes from the value.
    #[inline(always)]
    pub fn sub(&self, n: i64) {
        self.add(n.wrapping_neg());
    }

    /// Adds one now, and takes it away again when the guard is dropped.
    pub fn in_flight(&self) -> InFlight {
        self.add(1);
        InFlight { gauge: self.clone() }
    }
}

/// One thing in flight; see [`Gauge::in_flight`].
#[derive(Debug)]
#[must_use = "it counts until it is dropped"]
pub struct InFlight {
    gauge: Gauge<i64>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.gauge.sub(1);
    }
}

impl Server {
    /// The gauge of this name, without labels.
    ///
    /// # Errors
    /// [`Error::NoSuchRecord`](crate::Error::NoSuchRecord), also where its type is not `T`.
    pub fn gauge<T: GaugeValue>(&self, name: &str) -> Result<Gauge<T>> {
        self.gauge_with(name, &[])
    }

    /// The gauge of this name and these labels.
    ///
    /// # Errors
    /// [`Error::NoSuchRecord`](crate::Error::NoSuchRecord), also where its type is not `T`.
    pub fn gauge_with<T: GaugeValue>(
        &self,
        name: &str,
        labels: &[(&str, &str)],
    ) -> Result<Gauge<T>> {
        let expected = match T::TYPE {
            crate::schema::ValueType::U64 => "u64 gauge",
            crate::schema::ValueType::I64 => "i64 gauge",
            crate::schema::ValueType::F64 => "f64 gauge",
        };
        let alone = |kind, in_snapshot: bool| kind == Kind::Gauge(T::TYPE) && !in_snapshot;
        let id = self.find(name, labels, expected, alone)?;
        let view = self.region().view();
        Ok(Gauge {
            value: self.cell(id),
            mark: view.word_at(self.0.place(), view.layout.account_offset(id)),
            reset: view.reset_word(),
            fork: self.0.fork(),
            slot: Arc::clone(&self.0),
            kind: PhantomData,
        })
    }
}
