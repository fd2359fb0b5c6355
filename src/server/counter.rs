//! Handles of counters.

use std::sync::Arc;

use super::{Server, Slot};
use crate::error::Result;
use crate::lease::fork_number;
use crate::protocol::counter;
use crate::region::mapping::Word;
use crate::schema::{CounterMode, Kind, RecordId};

/// A drained counter of one server. Any thread may add; clones count in the same cell. In a
/// forked child it goes on counting for the parent's slot.
#[derive(Clone, Debug)]
#[must_use]
pub struct Counter {
    cell: Word,
    _slot: Arc<Slot>,
}

impl Counter {
    /// Counts `n` more.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        counter::add(&self.cell, n);
    }

    /// Counts one more.
    #[inline(always)]
    pub fn inc(&self) {
        self.add(1);
    }
}

/// A single-writer counter of one server: `add` is a load and a store, without a lock prefix. In a
/// forked child it counts nothing, and the region says that writes were skipped.
#[derive(Debug)]
#[must_use]
pub struct SingleWriterCounter {
    cell: Word,
    fork: u64,
    id: RecordId,
    slot: Arc<Slot>,
}

impl SingleWriterCounter {
    /// Counts `n` more.
    #[inline(always)]
    pub fn add(&mut self, n: u64) {
        // The parent goes on writing this cell; a second writer would lose its counts.
        if fork_number() != self.fork {
            return self.slot.skip_write();
        }
        counter::add_single_writer(&self.cell, n);
    }

    /// Counts one more.
    #[inline(always)]
    pub fn inc(&mut self) {
        self.add(1);
    }
}

impl Drop for SingleWriterCounter {
    fn drop(&mut self) {
        self.slot.return_writer(self.id);
    }
}

impl Server {
    /// The drained counter of this name, without labels.
    ///
    /// # Errors
    /// [`Error::NoSuchRecord`](crate::Error::NoSuchRecord).
    pub fn counter(&self, name: &str) -> Result<Counter> {
        self.counter_with(name, &[])
    }

    /// The drained counter of this name and these labels.
    ///
    /// # Errors
    /// [`Error::NoSuchRecord`](crate::Error::NoSuchRecord).
    pub fn counter_with(&self, name: &str, labels: &[(&str, &str)]) -> Result<Counter> {
        let drained = |kind, _| kind == Kind::Counter(CounterMode::Drained);
        let id = self.find(name, labels, "drained counter", drained)?;
        Ok(Counter { cell: self.cell(id), _slot: Arc::clone(&self.0) })
    }

    /// The single-writer counter of this name, without labels.
    ///
    /// # Errors
    /// As [`single_writer_with`](Self::single_writer_with).
    pub fn single_writer(&self, name: &str) -> Result<SingleWriterCounter> {
        self.single_writer_with(name, &[])
    }

    /// The single-writer counter of this name and these labels.
    ///
    /// # Errors
    /// [`Error::NoSuchRecord`](crate::Error::NoSuchRecord);
    /// [`Error::Held`](crate::Error::Held) while another handle of it is out.
    pub fn single_writer_with(
        &self,
        name: &str,
        labels: &[(&str, &str)],
    ) -> Result<SingleWriterCounter> {
        let single = |kind, _| kind == Kind::Counter(CounterMode::SingleWriter);
        let id = self.find(name, labels, "single-writer counter", single)?;
        self.0.take_writer(id)?;
        let slot = Arc::clone(&self.0);
        Ok(SingleWriterCounter { cell: self.cell(id), fork: slot.fork(), id, slot })
    }

    pub(super) fn cell(&self, id: RecordId) -> Word {
        let view = self.region().view();
        view.word_at(self.0.place(), view.layout.cell_offset(id))
    }
}
