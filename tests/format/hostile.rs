//! Damage: flipped bytes, truncation, noise. Each gives its typed error or does no harm.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use proptest::prelude::*;
use shmstats::{Error, Inspector, Region};

use super::image::{Image, assert_invalid, assert_refused, bounded, field, folder, open};

/// For each byte of the head, what must be said when it is damaged; `None`: nothing, it belongs to
/// a block that is written all the time, or to nothing.
fn coverage(image: &Image) -> Vec<Option<&'static str>> {
    let mut covered = vec![None; image.header("slots_offset")];
    covered[..image.header("header_size")].fill(Some("checksum"));
    covered[image.header("records_offset")..image.strings_end()].fill(Some("schema_hash"));
    for name in ["magic", "version", "byte_order"] {
        let (start, size) = field("Header", name);
        covered[start..start + size].fill(Some(name));
    }
    covered
}

#[test]
fn every_byte_of_the_head_is_covered_or_harmless() {
    bounded(|| {
        let folder = folder();
        let image = Image::sample();
        let path = image.write(folder.path());
        let file = File::options().write(true).open(&path).unwrap();
        let covered = coverage(&image);
        let head = covered.len();
        for (at, covered) in covered.iter().enumerate() {
            for flip in if at < 512 { &[0x01, 0xff][..] } else { &[0xff] } {
                file.write_all_at(&[image.0[at] ^ flip], at as u64).unwrap();
                match (*covered, open(&path)) {
                    (None, opened) => drop(opened.unwrap_or_else(|e| panic!("byte {at}: {e}"))),
                    (Some("version"), Err(error)) => {
                        assert!(matches!(error, Error::UnsupportedVersion { .. }), "{error:?}");
                    }
                    (Some(field), Err(error)) => assert_invalid(&error, field),
                    (Some(field), Ok(_)) => panic!("byte {at}: opened, but {field} is wrong"),
                }
                // All of it: a writer that takes the file for another boot's writes words too.
                file.write_all_at(&image.0[..head], 0).unwrap();
            }
        }
    });
}

#[test]
fn every_other_length_is_refused() {
    bounded(|| {
        let folder = folder();
        let image = Image::sample();
        let path = image.write(folder.path());
        let file = File::options().write(true).open(&path).unwrap();
        let full = image.0.len() as u64;
        for longer in [1, 7, 8, 4096, 1 << 30] {
            file.set_len(full + longer).unwrap();
            assert_refused(&path, "file_size");
        }
        for length in (0..full).rev() {
            file.set_len(length).unwrap();
            let error = open(&path).unwrap_err();
            assert_invalid(&error, "file_size");
            let Error::InvalidRegion { expected, found, .. } = &error else { unreachable!() };
            if length < 256 {
                assert_eq!(
                    (expected.as_str(), found),
                    ("at least 256 bytes", &format!("{length} bytes"))
                );
            } else {
                assert_eq!((expected, found), (&full.to_string(), &length.to_string()));
            }
        }
    });
}

#[test]
fn another_version_is_named_as_such() {
    let folder = folder();
    for version in [0u32, 2, u32::MAX] {
        let mut image = Image::sample();
        image.set("Header", 0, "version", version.into());
        // Whatever else a later version holds: its checksum may lie elsewhere.
        image.0.truncate(300);
        let error = open(&image.write(folder.path())).unwrap_err();
        let Error::UnsupportedVersion { expected, found, .. } = error else { panic!("{error:?}") };
        assert_eq!((expected, found), (1, version));
        let message = error.to_string();
        assert!(message.contains(&format!("version {version},")) && message.contains("version 1"));
    }
}

#[test]
fn the_other_byte_order_is_named_as_such() {
    let folder = folder();
    let mut image = Image::sample();
    for name in ["version", "byte_order", "file_size", "checksum"] {
        let (at, size) = field("Header", name);
        image.0[at..at + size].reverse();
    }
    let error = open(&image.write(folder.path())).unwrap_err();
    assert_invalid(&error, "byte_order");
    let message = error.to_string();
    assert!(message.contains("0x0102030405060708") && message.contains("0x0807060504030201"));
}

/// Reads all there is to read, and counts; nothing may panic or hang.
fn exercise(path: &Path) {
    let mut inspector = match open(path) {
        Ok(inspector) => inspector,
        Err(
            error @ (Error::InvalidRegion { .. }
            | Error::UnsupportedVersion { .. }
            | Error::Untrusted { .. }),
        ) => return assert!(!error.to_string().is_empty()),
        Err(other) => panic!("{other:?}"),
    };
    let look = |inspector: &mut Inspector| {
        let schema = inspector.schema().clone();
        inspector.totals();
        let observation = inspector.observe().unwrap();
        for id in schema.ids() {
            let _ = (inspector.last_totals().of(id), observation.gauge_of(id));
        }
        observation.owners.iter().for_each(|owner| assert!(!owner.is_stopped()));
        assert!(!format!("{observation:?}").is_empty());
    };
    look(&mut inspector);
    let region = Region::open(path).unwrap();
    let _server = region.claim(0).unwrap();
    let mut primary = region.primary().unwrap();
    let interval = primary.drain();
    interval.schema().ids().for_each(|id| {
        let _ = (interval.delta_of(id), interval.rate_of(id));
        let _ = (interval.gauge_of(id), interval.age_of(id));
    });
    primary.reset();
    assert!(primary.drain().is_idle());
    look(&mut inspector);
    drop(primary);
    look(&mut inspector);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whoever may write to the file can put any words into the blocks and slots.
    #[test]
    fn any_words_in_blocks_and_slots_do_no_harm(
        seed in any::<u64>(),
        odd_words in prop::collection::vec(any::<u64>(), 1..4),
    ) {
        let mut image = Image::golden();
        let mut state = seed | 1;
        let blocks = image.header("region_block")..image.header("records_offset");
        let slots = image.header("slots_offset")..image.0.len();
        for at in blocks.chain(slots).step_by(8) {
            // Xorshift; now and then a word that means something.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let word = match state % 8 {
                0 => 0,
                1 => u64::MAX,
                2 => odd_words[at % odd_words.len()],
                3 | 4 => state % 4,
                _ => state,
            };
            image.0[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        let folder = folder();
        let path = image.write(folder.path());
        bounded(move || exercise(&path));
    }

    /// Bytes changed anywhere in the head, under checksums that hold.
    #[test]
    fn a_head_with_right_checksums_is_refused_or_sound(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        to_fields in any::<bool>(),
    ) {
        let mut image = Image::golden();
        let places: Vec<usize> = if to_fields {
            (256 * 2..image.header("strings_offset")).chain(88..152).collect()
        } else {
            (12..256).chain(512..image.strings_end()).collect()
        };
        for (index, value) in changes {
            image.0[places[index.index(places.len())]] = value;
        }
        image.seal();
        let folder = folder();
        let path = image.write(folder.path());
        bounded(move || exercise(&path));
    }

    #[test]
    fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000), magic in any::<bool>()) {
        let mut bytes = bytes;
        if magic {
            for (byte, magic) in bytes.iter_mut().zip(b"shmstats") {
                *byte = *magic;
            }
        }
        let folder = folder();
        let path = Image(bytes).write(folder.path());
        let error = open(&path).unwrap_err();
        let Error::InvalidRegion { field, .. } = &error else { panic!("{error:?}") };
        assert_invalid(&error, &field.clone());
        prop_assert!(["file_size", "magic", "byte_order"].contains(&field.as_str()), "{error}");
    }
}
