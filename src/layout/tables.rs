//! The fixed-size pieces of the file: one Rust struct per table of `docs/format.md`.
//!
//! Header, record and snapshot entries never change after creation and are only ever looked at in
//! private copies. The blocks are arrays of atomic words in the live mapping; here they only have
//! names and places.

use bytemuck::{Pod, Zeroable};

/// A field's name, offset and size in bytes, for the test that holds `docs/format.md` to this file.
pub(crate) type Field = (&'static str, usize, usize);

macro_rules! table {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Pod, Zeroable)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)* }

        impl $name {
            #[cfg_attr(not(test), allow(dead_code))]
            pub(crate) const FIELDS: &'static [Field] = &[$((
                stringify!($field),
                std::mem::offset_of!($name, $field),
                size_of::<$type>(),
            ),)*];
        }
    };
}

macro_rules! block {
    ($(#[$meta:meta])* $name:ident { $($word:ident = $index:literal,)* }) => {
        $(#[$meta])*
        pub(crate) struct $name;

        impl $name {
            $(pub(crate) const $word: usize = $index;)*
            #[cfg_attr(not(test), allow(dead_code))]
            pub(crate) const FIELDS: &'static [Field] = &[$((stringify!($word), 8 * $index, 8),)*];
        }
    };
}

table! {
    /// A piece of the strings: a byte offset from their start, and a length.
    Text {
        offset: u32,
        len: u32,
    }
}

table! {
    /// The first 256 bytes of the file.
    Header {
        magic: [u8; 8],
        version: u32,
        header_size: u32,
        byte_order: u64,
        file_size: u64,
        region_block: u64,
        primary_block: u64,
        records_offset: u64,
        snapshots_offset: u64,
        strings_offset: u64,
        slots_offset: u64,
        slot_stride: u64,
        record_size: u32,
        record_count: u32,
        snapshot_size: u32,
        snapshot_count: u32,
        strings_size: u32,
        slot_count: u32,
        server_count: u32,
        drained_offset: u32,
        drained_count: u32,
        single_offset: u32,
        single_count: u32,
        gauges_offset: u32,
        gauges_count: u32,
        publications_offset: u32,
        publications_size: u32,
        ledger_offset: u32,
        created_at: u64,
        boot_id: [u8; 16],
        namespace: Text,
        flags: u64,
        schema_hash: u32,
        reserved: [u8; 56],
        checksum: u32,
    }
}

table! {
    /// One declared series.
    RecordEntry {
        kind: u8,
        variant: u8,
        rollup: u8,
        scope: u8,
        lifetime: u8,
        reserved0: [u8; 3],
        flags: u32,
        cell: u32,
        account: u32,
        snapshot: u32,
        name: Text,
        unit: Text,
        help: Text,
        labels: Text,
        reserved1: [u8; 40],
    }
}

table! {
    /// One group of gauges.
    SnapshotEntry {
        scope: u8,
        lifetime: u8,
        reserved0: [u8; 2],
        offset: u32,
        first_record: u32,
        record_count: u32,
        stale_after: u64,
        name: Text,
        labels: Text,
        reserved1: [u8; 24],
    }
}

block! {
    /// Words of the region block. Every publication reads the reset number, so the first line is
    /// written rarely; what may be counted often stands on the second.
    RegionBlock {
        RESET_NUMBER = 0,
        RESET_AT = 1,
        BOOT_ID = 2,
        SERVER_COUNT = 3,
        REFUSED_SERVERS = 16,
        INTERRUPTED_DRAINS = 17,
        SKIPPED_WRITES = 18,
    }
}

block! {
    /// Words of the primary block: written by the primary.
    PrimaryBlock {
        GENERATION = 0,
        PID = 1,
        START_TIME = 2,
        CLAIMED_AT = 3,
        DRAINS = 4,
        DRAINED_AT = 5,
        BEHIND = 6,
    }
}

block! {
    /// Words of a slot's owner block: written by the owner.
    OwnerBlock {
        GENERATION = 0,
        PID = 1,
        START_TIME = 2,
        CLAIMED_AT = 3,
        HEARTBEAT_AT = 4,
        STATE = 5,
        SERVER_INDEX = 6,
    }
}

/// Words in a block: one line.
pub(crate) const BLOCK_WORDS: usize = 16;
/// Words in the region block: two lines.
pub(crate) const REGION_BLOCK_WORDS: usize = 32;

const _: () = assert!(size_of::<Header>() == 256);
const _: () = assert!(size_of::<RecordEntry>() == 96);
const _: () = assert!(size_of::<SnapshotEntry>() == 64);
