//! The fuzzer's entry without the fuzzer: its corpus, and random inputs of both forms.
#![cfg(target_endian = "little")]

#[path = "../fuzz/entry.rs"]
mod entry;

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

/// What the corpus is for: each input once, so that what was found stays found.
#[test]
fn the_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/open");
    let entries = std::fs::read_dir(&corpus).expect("the corpus");
    let mut inputs = 0;
    for entry in entries {
        entry::run(&std::fs::read(entry.expect("an entry").path()).expect("an input"));
        inputs += 1;
    }
    assert!(inputs > 10, "{} has {inputs} inputs", corpus.display());
}

/// A change to the golden file, more often in the head than elsewhere, with values that are near
/// what a length or an offset may be.
fn change() -> impl Strategy<Value = Vec<u8>> {
    let offset = prop_oneof![0..256_u32, 0..4096_u32, 0..65536_u32];
    let value = prop_oneof![
        any::<u64>(),
        0..300_u64,
        Just(u64::MAX),
        (0..64_u32).prop_map(|bit| 1 << bit),
        (0..64_u32).prop_map(|bit| (1_u64 << bit).wrapping_sub(1)),
    ];
    (offset, any::<u8>(), value).prop_map(|(offset, width, value)| {
        let mut bytes = offset.to_le_bytes()[..3].to_vec();
        bytes.push(width);
        bytes.extend(value.to_le_bytes());
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn changes_to_a_golden_file(changes in vec(change(), 0..6)) {
        entry::run(&[vec![1], changes.concat()].concat());
    }

    #[test]
    fn bytes_of_any_kind(bytes in vec(any::<u8>(), 0..9000)) {
        entry::run(&bytes);
    }
}
