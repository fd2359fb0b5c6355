//! The golden file: what this format looked like when it was fixed, byte for byte. After a change
//! that is meant (which needs another version, unless it only adds), write it anew with
//! `SHMSTATS_BLESS=1 cargo test --lib golden`.
#![cfg(target_endian = "little")]

use super::*;

const GOLDEN: &[u8] = include_bytes!("../../../tests/data/v1.shmstats");

/// The sample schema in two slots: slot 0 of a server that died, slot 1 of one that gave it back,
/// which a primary died in while it drained it.
fn golden() -> Vec<u8> {
    let layout = Layout::of(&sample::schema(), 2, 2);
    let mut words: Vec<u64> = vec![0; layout.file_size / 8];
    for (word, bytes) in words.iter_mut().zip(layout.encode(BIRTH).chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    }
    let mut block = |at: usize, values: &[(usize, u64)]| {
        for (word, value) in values {
            words[at / 8 + word] = *value;
        }
    };
    block(
        layout.region_block,
        &[
            (RegionBlock::RESET_NUMBER, 1),
            (RegionBlock::RESET_AT, 600),
            (RegionBlock::REFUSED_SERVERS, 2),
            (RegionBlock::INTERRUPTED_DRAINS, 3),
            (RegionBlock::SKIPPED_WRITES, 4),
        ],
    );
    block(
        layout.primary_block,
        &[
            (PrimaryBlock::GENERATION, 5),
            (PrimaryBlock::PID, 4242),
            (PrimaryBlock::START_TIME, 77),
            (PrimaryBlock::CLAIMED_AT, 700),
            (PrimaryBlock::DRAINS, 9),
            (PrimaryBlock::DRAINED_AT, 800),
            (PrimaryBlock::BEHIND, 6),
        ],
    );
    let owner = |generation, pid, state, index| {
        [
            (OwnerBlock::GENERATION, generation),
            (OwnerBlock::PID, pid),
            (OwnerBlock::START_TIME, 77),
            (OwnerBlock::CLAIMED_AT, 900),
            (OwnerBlock::HEARTBEAT_AT, 1000),
            (OwnerBlock::STATE, state),
            (OwnerBlock::SERVER_INDEX, index),
        ]
    };
    let slot = |n: usize| layout.slots_offset + n * 8 * layout.stride;
    block(slot(0), &owner(2, 4242, 1, 0));
    block(slot(1), &owner(6, 4243, 2, u64::MAX));

    // In declared order: two drained cells, one single-writer cell.
    let counters = |n, drained: [u64; 2], single, accounts: [u64; 6]| {
        let at = |span: Span| slot(n) + 8 * span.start;
        [
            (at(layout.drained), drained.to_vec()),
            (at(layout.single), vec![single]),
            (at(layout.accounts), accounts.to_vec()),
        ]
    };
    // Sequence; ledger and intent of "ok" and "error"; watermark of "sent".
    let settled = counters(0, [5, 0], 12345, [2, 100, 100, 7, 7, 12000]);
    let drained_half = counters(1, [4, 2], 55, [3, 10, 30, 3, 3, 55]);
    // Value and mark of workers, in_flight and temperature; the mark of reset number 1 is 2.
    let gauges = |n, words: [u64; 6]| (slot(n) + 8 * layout.gauges.start, words.to_vec());
    let gauges = [
        gauges(0, [8, 2, 3, 2, 36.5f64.to_bits(), 2]),
        gauges(1, [9, 1, (-3i64).cast_unsigned(), 0, (-1.25f64).to_bits(), 2]),
    ];
    let publication = |n, snapshot: usize, words: &[u64]| {
        (slot(n) + 8 * layout.snapshots[snapshot].start, words.to_vec())
    };
    let publications = [
        publication(0, 0, &[2, 1, 1100, 0b11, 12, (-40i64).cast_unsigned()]),
        // Engine 0: slot 1 has the newer publication, and 0.0 is a value.
        publication(0, 1, &[8, 1, 5000, 0b11, 3, 0.5f64.to_bits()]),
        publication(1, 1, &[2, 1, 6000, 0b11, 0, 0.0f64.to_bits()]),
        // Engine 1: slot 0's only value is there; slot 1 died in the middle of a newer one.
        publication(0, 2, &[4, 1, 5000, 0b01, 9, 0]),
        publication(1, 2, &[7, 1, 7000, 0b11, 1, 1.0f64.to_bits()]),
        // The cache: long stale.
        publication(0, 3, &[2, 1, 1200, 0b1, 1000]),
    ];
    let all = settled.into_iter().chain(drained_half).chain(gauges).chain(publications);
    for (at, values) in all {
        words[at / 8..at / 8 + values.len()].copy_from_slice(&values);
    }
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn the_golden_file_is_written_the_same() {
    let now = golden();
    if std::env::var_os("SHMSTATS_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/v1.shmstats");
        std::fs::write(path, &now).expect("the source tree is writable");
        return;
    }
    assert_eq!(now.len(), GOLDEN.len());
    let differs = now.iter().zip(GOLDEN).position(|(a, b)| a != b);
    assert_eq!(differs, None, "offset of the first byte that differs");
}

#[test]
fn the_golden_file_reads_as_the_same_schema() {
    let layout = read(&GOLDEN[..golden_head()], GOLDEN.len()).unwrap();
    assert_eq!(layout.schema, sample::schema());
    assert_eq!((layout.server_count, layout.slot_count), (2, 2));
}

fn golden_head() -> usize {
    read_header(GOLDEN, GOLDEN.len() as u64).unwrap().slots_offset as usize
}
