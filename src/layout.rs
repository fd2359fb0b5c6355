//! Where everything lies: offsets and sizes derived from a schema, and the file's head in bytes.
//! Pure; `docs/format.md` is the specification.
//!
//! ```text
//! header | region block | primary block | records | snapshots | strings | slot 0 | slot 1 | …
//! slot:  owner block | drained cells | single-writer cells | lone gauges | snapshots | accounts
//! ```
//!
//! Each part of a slot begins on a line of its own, so that a line is written by one side only:
//! the accounts by the primary, the rest by the slot's owner (and drained cells by both).

mod decode;
mod encode;
pub(crate) mod tables;
#[cfg(test)]
mod tests;

pub(crate) use decode::{Fault, own_header, read_header};
pub(crate) use encode::{Birth, boot_word};
pub(crate) use tables::{
    BLOCK_WORDS, Header, OwnerBlock, PrimaryBlock, REGION_BLOCK_WORDS, RegionBlock,
};

use crate::protocol::snapshot::HEAD_WORDS;
use crate::schema::names::{MAX_HELP, MAX_LABEL_VALUE, MAX_LABELS, MAX_NAME};
use crate::schema::{CounterMode, Kind, MAX_RECORDS, RecordId, Schema};

/// The bytes a region begins with.
pub(crate) const MAGIC: [u8; 8] = *b"shmstats";
/// The format version this build reads and writes.
pub(crate) const VERSION: u32 = 1;
/// Read back as another number, the file is from a machine of the other byte order.
pub(crate) const BYTE_ORDER_MARK: u64 = 0x0102_0304_0506_0708;
/// Parts that different processes write begin at multiples of this: a cache line, or the pair of
/// lines that processors fetch together.
pub(crate) const LINE: usize = 128;
/// The slots begin at a multiple of this: a page, on most machines. Whatever the machine's page
/// is, so that the file looks the same.
pub(crate) const PAGE: usize = 4096;
/// Most slots in one region.
pub(crate) const MAX_SLOTS: u32 = 4096;
/// Most bytes of strings.
pub(crate) const MAX_STRINGS: usize = 64 << 20;
// Every schema that its own rules allow can be laid out and read again.
const _: () = assert!(
    MAX_NAME
        + MAX_RECORDS * (2 * MAX_NAME + MAX_HELP + MAX_LABELS_SIZE)
        + MAX_RECORDS * (MAX_NAME + MAX_LABELS_SIZE)
        <= MAX_STRINGS
);
/// Most bytes of one record's labels, with their lengths.
const MAX_LABELS_SIZE: usize = MAX_LABELS * (2 + MAX_NAME + 2 + MAX_LABEL_VALUE);

/// Where a record's words lie in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The n-th drained cell.
    Drained(usize),
    /// The n-th single-writer cell.
    Single(usize),
    /// The n-th lone gauge: its value word, then its mark.
    Gauge(usize),
    /// The n-th value of a snapshot.
    Field { snapshot: usize, field: usize },
}

/// A run of words in a slot: where it begins and how many, both in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// The layout of one region.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) schema: Schema,
    /// One per record of the schema.
    pub(crate) places: Vec<Place>,
    /// One per snapshot of the schema.
    pub(crate) snapshots: Vec<Span>,
    pub(crate) drained: Span,
    pub(crate) single: Span,
    pub(crate) gauges: Span,
    /// Sequence, then ledger and intent per drained cell, then watermarks.
    pub(crate) accounts: Span,
    /// Words from one slot to the next.
    pub(crate) stride: usize,
    /// Byte offset of slot 0.
    pub(crate) slots_offset: usize,
    pub(crate) region_block: usize,
    pub(crate) primary_block: usize,
    pub(crate) slot_count: u32,
    /// How many servers were configured.
    pub(crate) server_count: u32,
    pub(crate) file_size: usize,
    /// The records in order of the drained cells, and of the single-writer cells.
    pub(crate) drained_records: Vec<RecordId>,
    pub(crate) single_records: Vec<RecordId>,
    /// The lone gauges: which they are in a slot, and their records.
    pub(crate) gauge_records: Vec<(usize, RecordId)>,
}

fn round_up(n: usize, to: usize) -> usize {
    n.div_ceil(to) * to
}

impl Layout {
    /// Lays out a schema for so many slots. The caller keeps `slot_count` within `MAX_SLOTS`.
    pub(crate) fn of(schema: &Schema, server_count: u32, slot_count: u32) -> Self {
        let line = LINE / 8;
        let mut places = Vec::with_capacity(schema.records().len());
        let (mut drained, mut single, mut gauges) = (0, 0, 0);
        let take = |n: &mut usize| {
            *n += 1;
            *n - 1
        };
        for (i, record) in schema.records().iter().enumerate() {
            places.push(match (record.kind, record.snapshot) {
                (Kind::Counter(CounterMode::Drained), _) => Place::Drained(take(&mut drained)),
                (Kind::Counter(CounterMode::SingleWriter), _) => Place::Single(take(&mut single)),
                (Kind::Gauge(_), None) => Place::Gauge(take(&mut gauges)),
                (Kind::Gauge(_), Some(snapshot)) => {
                    Place::Field { snapshot, field: i - schema.snapshots()[snapshot].records.start }
                }
            });
        }
        let mut next = line; // after the owner block
        let mut part = |len: usize| {
            let span = Span { start: next, len };
            next = round_up(next + len, line);
            span
        };
        let (drained, single, gauges) = (part(drained), part(single), part(2 * gauges));
        let publications =
            part(schema.snapshots().iter().map(|shape| HEAD_WORDS + shape.records.len()).sum());
        let accounts = part(1 + 2 * drained.len + single.len);
        let mut start = publications.start;
        let snapshots = schema.snapshots().iter().map(|shape| {
            let span = Span { start, len: HEAD_WORDS + shape.records.len() };
            start += span.len;
            span
        });
        let snapshots = snapshots.collect();
        let stride = next;
        let region_block = size_of::<Header>();
        let primary_block = region_block + 8 * tables::REGION_BLOCK_WORDS;
        let slots_offset = round_up(
            primary_block + LINE + encode::tables_size(schema) + encode::strings_size(schema),
            PAGE,
        );
        let file_size = slots_offset + slot_count as usize * stride * 8;
        let mut layout = Layout {
            schema: schema.clone(),
            places,
            snapshots,
            drained,
            single,
            gauges,
            accounts,
            stride,
            slots_offset,
            region_block,
            primary_block,
            slot_count,
            server_count,
            file_size,
            drained_records: Vec::new(),
            single_records: Vec::new(),
            gauge_records: Vec::new(),
        };
        layout.index_records();
        layout
    }

    fn index_records(&mut self) {
        let mut drained = vec![RecordId(0); self.drained.len];
        let mut single = vec![RecordId(0); self.single.len];
        for (i, place) in self.places.iter().enumerate() {
            match *place {
                Place::Drained(n) => drained[n] = RecordId(i),
                Place::Single(n) => single[n] = RecordId(i),
                Place::Gauge(n) => self.gauge_records.push((n, RecordId(i))),
                Place::Field { .. } => {}
            }
        }
        (self.drained_records, self.single_records) = (drained, single);
    }

    /// Byte offset of the first snapshot's words in a slot, and how many bytes they take.
    fn publications(&self) -> (usize, usize) {
        let size = self.snapshots.iter().map(|span| span.len).sum::<usize>() * 8;
        let gauges_end = round_up(self.gauges.start + self.gauges.len, LINE / 8);
        (self.snapshots.first().map_or(gauges_end, |span| span.start) * 8, size)
    }

    /// Byte offset in a slot of a record's value word.
    pub(crate) fn cell_offset(&self, id: RecordId) -> usize {
        8 * match self.places[id.0] {
            Place::Drained(n) => self.drained.start + n,
            Place::Single(n) => self.single.start + n,
            Place::Gauge(n) => self.gauges.start + 2 * n,
            Place::Field { snapshot, field } => self.snapshots[snapshot].start + HEAD_WORDS + field,
        }
    }

    /// Byte offset in a slot of the word that goes with it: ledger (the intent follows it),
    /// watermark, mark, or the snapshot's sequence.
    pub(crate) fn account_offset(&self, id: RecordId) -> usize {
        let accounts = self.accounts.start + 1;
        8 * match self.places[id.0] {
            Place::Drained(n) => accounts + 2 * n,
            Place::Single(n) => accounts + 2 * self.drained.len + n,
            Place::Gauge(n) => self.gauges.start + 2 * n + 1,
            Place::Field { snapshot, .. } => self.snapshots[snapshot].start,
        }
    }
}
