//! The head of a new file: everything before the slots.

use std::collections::HashMap;

use bytemuck::Zeroable;
use bytemuck::bytes_of;

use super::tables::{Header, RecordEntry, RegionBlock, SnapshotEntry, Text};
use super::{BYTE_ORDER_MARK, LINE, Layout, MAGIC, VERSION};
use crate::schema::{CounterMode, Kind, Lifetime, RecordId, Rollup, Schema, Scope, ValueType};

pub(super) const KIND_COUNTER: u8 = 1;
pub(super) const KIND_GAUGE: u8 = 2;
/// `snapshot` of a record that stands alone.
pub(super) const NO_SNAPSHOT: u32 = u32::MAX;

/// Each enum's codes in the file, in one table per enum, read in both directions.
pub(super) const COUNTER_MODES: [(u8, CounterMode); 2] =
    [(1, CounterMode::Drained), (2, CounterMode::SingleWriter)];
pub(super) const VALUE_TYPES: [(u8, ValueType); 3] =
    [(1, ValueType::U64), (2, ValueType::I64), (3, ValueType::F64)];
pub(super) const ROLLUPS: [(u8, Rollup); 4] =
    [(1, Rollup::Sum), (2, Rollup::Mean), (3, Rollup::Max), (4, Rollup::Min)];
pub(super) const SCOPES: [(u8, Scope); 2] = [(1, Scope::Server), (2, Scope::Shared)];
pub(super) const LIFETIMES: [(u8, Lifetime); 2] = [(1, Lifetime::Owner), (2, Lifetime::Region)];

fn code<T: Copy + PartialEq>(table: &[(u8, T)], value: T) -> u8 {
    table.iter().find(|(_, v)| *v == value).map_or(0, |(code, _)| *code)
}

/// When and where a region is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth {
    /// Nanoseconds since the Unix epoch.
    pub(crate) created_at: u64,
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub(crate) monotonic: u64,
    pub(crate) boot_id: [u8; 16],
}

/// The first half of a boot id, as the region block keeps it; never 0.
pub(crate) fn boot_word(boot_id: [u8; 16]) -> u64 {
    (u128::from_be_bytes(boot_id) >> 64) as u64 | 1
}

/// Bytes of the record and snapshot tables.
pub(super) fn tables_size(schema: &Schema) -> usize {
    schema.records().len() * size_of::<RecordEntry>()
        + schema.snapshots().len() * size_of::<SnapshotEntry>()
}

/// Bytes of all strings, each of which is stored once.
pub(super) fn strings_size(schema: &Schema) -> usize {
    let mut strings = Strings::default();
    strings.add(schema.namespace().as_bytes());
    for record in schema.records() {
        for text in [&record.name, &record.unit, &record.help] {
            strings.add(text.as_bytes());
        }
        strings.add(&labels_bytes(&record.labels));
    }
    for snapshot in schema.snapshots() {
        strings.add(snapshot.name.as_bytes());
        strings.add(&labels_bytes(&snapshot.labels));
    }
    strings.bytes.len()
}

/// Labels as the file holds them: for each, the length of the key, the key, the length of the
/// value, the value; lengths are u16.
fn labels_bytes(labels: &[(String, String)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in labels.iter().flat_map(|(key, value)| [key, value]) {
        // The schema's rules keep every length below 2^16.
        bytes.extend((text.len() as u16).to_ne_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// Each string once: names, units and help texts are the same throughout a family.
#[derive(Default)]
struct Strings {
    bytes: Vec<u8>,
    known: HashMap<Vec<u8>, Text>,
}

impl Strings {
    fn add(&mut self, bytes: &[u8]) -> Text {
        if let Some(known) = self.known.get(bytes) {
            return *known;
        }
        let text = Text { offset: self.bytes.len() as u32, len: bytes.len() as u32 };
        self.bytes.extend(bytes);
        self.known.insert(bytes.into(), text);
        text
    }
}

impl Layout {
    /// The bytes from the start of the file to slot 0.
    pub(crate) fn encode(&self, birth: Birth) -> Vec<u8> {
        let schema = &self.schema;
        let mut strings = Strings::default();
        let namespace = strings.add(schema.namespace().as_bytes());
        let mut tables = Vec::new();
        for i in 0..schema.records().len() {
            tables.extend(bytes_of(&self.record_entry(RecordId(i), &mut strings)));
        }
        for i in 0..schema.snapshots().len() {
            tables.extend(bytes_of(&self.snapshot_entry(i, &mut strings)));
        }
        let records_offset = self.primary_block + LINE;
        let strings_offset = records_offset + tables.len();
        tables.extend(&strings.bytes);

        let (publications_offset, publications_size) = self.publications();
        let mut header = Header {
            magic: MAGIC,
            version: VERSION,
            header_size: size_of::<Header>() as u32,
            byte_order: BYTE_ORDER_MARK,
            file_size: self.file_size as u64,
            region_block: self.region_block as u64,
            primary_block: self.primary_block as u64,
            records_offset: records_offset as u64,
            snapshots_offset: (strings_offset
                - schema.snapshots().len() * size_of::<SnapshotEntry>())
                as u64,
            strings_offset: strings_offset as u64,
            slots_offset: self.slots_offset as u64,
            slot_stride: 8 * self.stride as u64,
            record_size: size_of::<RecordEntry>() as u32,
            record_count: schema.records().len() as u32,
            snapshot_size: size_of::<SnapshotEntry>() as u32,
            snapshot_count: schema.snapshots().len() as u32,
            strings_size: strings.bytes.len() as u32,
            slot_count: self.slot_count,
            server_count: self.server_count,
            drained_offset: 8 * self.drained.start as u32,
            drained_count: self.drained.len as u32,
            single_offset: 8 * self.single.start as u32,
            single_count: self.single.len as u32,
            gauges_offset: 8 * self.gauges.start as u32,
            gauges_count: self.gauges.len as u32 / 2,
            publications_offset: publications_offset as u32,
            publications_size: publications_size as u32,
            ledger_offset: 8 * self.accounts.start as u32,
            created_at: birth.created_at,
            boot_id: birth.boot_id,
            namespace,
            flags: 0,
            schema_hash: crc32fast::hash(&tables),
            reserved: [0; 56],
            checksum: 0,
        };
        header.checksum = header.expected_checksum();
        let mut head = vec![0; self.slots_offset];
        head[..size_of::<Header>()].copy_from_slice(bytes_of(&header));
        head[records_offset..records_offset + tables.len()].copy_from_slice(&tables);
        // Set before the file has a name: who finds it must not take it for one of another boot,
        // and hide by its adoption what the creator has set meanwhile.
        for (word, value) in [
            (RegionBlock::RESET_AT, birth.monotonic),
            (RegionBlock::BOOT_ID, boot_word(birth.boot_id)),
            (RegionBlock::SERVER_COUNT, u64::from(self.server_count)),
        ] {
            let at = self.region_block + 8 * word;
            head[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        head
    }

    fn record_entry(&self, id: RecordId, strings: &mut Strings) -> RecordEntry {
        let record = &self.schema[id];
        let (kind, variant) = match record.kind {
            Kind::Counter(mode) => (KIND_COUNTER, code(&COUNTER_MODES, mode)),
            Kind::Gauge(value_type) => (KIND_GAUGE, code(&VALUE_TYPES, value_type)),
        };
        RecordEntry {
            kind,
            variant,
            rollup: code(&ROLLUPS, record.rollup),
            scope: code(&SCOPES, record.scope),
            lifetime: code(&LIFETIMES, record.lifetime),
            cell: self.cell_offset(id) as u32,
            account: self.account_offset(id) as u32,
            snapshot: record.snapshot.map_or(NO_SNAPSHOT, |i| i as u32),
            name: strings.add(record.name.as_bytes()),
            unit: strings.add(record.unit.as_bytes()),
            help: strings.add(record.help.as_bytes()),
            labels: strings.add(&labels_bytes(&record.labels)),
            ..RecordEntry::zeroed()
        }
    }

    fn snapshot_entry(&self, i: usize, strings: &mut Strings) -> SnapshotEntry {
        let shape = &self.schema.snapshots()[i];
        SnapshotEntry {
            scope: code(&SCOPES, shape.scope),
            lifetime: code(&LIFETIMES, shape.lifetime),
            offset: 8 * self.snapshots[i].start as u32,
            first_record: shape.records.start as u32,
            record_count: shape.records.len() as u32,
            stale_after: shape.stale_after_ns,
            name: strings.add(shape.name.as_bytes()),
            labels: strings.add(&labels_bytes(&shape.labels)),
            ..SnapshotEntry::zeroed()
        }
    }
}

impl Header {
    /// CRC-32 of the header's bytes before the checksum.
    pub(super) fn expected_checksum(&self) -> u32 {
        crc32fast::hash(&bytes_of(self)[..std::mem::offset_of!(Header, checksum)])
    }
}
