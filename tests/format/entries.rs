//! Heads that are wrong in more than one field or in their strings, and heads that are unusual and
//! right. All under checksums that hold.

use std::path::{Path, PathBuf};

use shmstats::{Inspector, Region};
use tempfile::TempDir;

use super::fields::{NONE, check_one};
use super::image::{Image, assert_invalid, bounded, folder, open};
use super::sample;

/// Changes to more than one field, or to the strings themselves.
fn check_image(change: impl FnOnce(&mut Image), expected: Option<&str>) -> Option<Inspector> {
    let folder = folder();
    let mut image = Image::sample();
    change(&mut image);
    image.seal();
    let path = image.write(folder.path());
    check_one(&image, folder.path(), "image", expected);
    expected.is_none().then(|| Inspector::open(path).unwrap())
}

/// Copies a field from one entry to another.
fn copy(image: &mut Image, table: &str, from: usize, to: usize, name: &str) {
    let value = image.get(table, from, name);
    image.set(table, to, name, value);
}

#[test]
fn what_stands_twice_is_refused() {
    let records = |image: &Image| (image.record(0), image.record(1));
    check_image(
        |image| {
            let (first, second) = records(image);
            copy(image, "RecordEntry", first, second, "labels");
        },
        Some("records"),
    );
    check_image(
        |image| {
            let (first, second) = records(image);
            copy(image, "RecordEntry", first, second, "cell");
            copy(image, "RecordEntry", first, second, "account");
        },
        Some("records[1].cell"),
    );
    check_image(
        |image| {
            let (first, second) = (image.snapshot(1), image.snapshot(2));
            copy(image, "SnapshotEntry", first, second, "labels");
        },
        Some("records"),
    );
}

/// Cells need not lie in declared order.
#[test]
fn cells_may_change_places() {
    let opened = check_image(
        |image| {
            let (first, second) = (image.record(0), image.record(1));
            for name in ["cell", "account"] {
                let value = image.get("RecordEntry", first, name);
                copy(image, "RecordEntry", second, first, name);
                image.set("RecordEntry", second, name, value);
            }
            // 7 pending in what is now the first record's cell.
            let cell = image.get("RecordEntry", first, "cell") as usize;
            let slot = image.header("slots_offset");
            image.0[slot + cell] = 7;
        },
        None,
    );
    let mut inspector = opened.unwrap();
    let ids: Vec<_> = inspector.schema().named("requests").collect();
    let totals = inspector.totals();
    assert_eq!((totals.of(ids[0]), totals.of(ids[1])), (7, 0));
}

/// Two entries may name the same bytes.
#[test]
fn strings_may_be_shared() {
    let opened = check_image(
        |image| {
            let (first, second) = (image.record(2), image.record(3));
            copy(image, "RecordEntry", first, second, "help");
        },
        None,
    );
    let schema = opened.unwrap().schema().clone();
    assert_eq!(schema.records()[2].help, schema.records()[3].help);
}

#[test]
fn strings_that_break_the_rules_are_refused() {
    let put = |i: usize, name: &'static str, at: usize, bytes: &'static [u8]| {
        move |image: &mut Image| {
            let entry = image.record(i);
            let start = image.get("RecordEntry", entry, name) as u32 as usize;
            let start = image.header("strings_offset") + start + at;
            image.0[start..start + bytes.len()].copy_from_slice(bytes);
        }
    };
    check_image(put(2, "name", 1, &[0xff]), Some("records[2].name"));
    check_image(put(2, "help", 0, &[0xc3, 0x28]), Some("records[2].help"));
    check_image(put(2, "unit", 0, &[0x80]), Some("records[2].unit"));
    // Key and value of the label "model" begin behind their lengths.
    check_image(put(0, "labels", 2, &[0xfe]), Some("records[0].labels"));
    check_image(put(0, "labels", 9, &[0xfe]), Some("records[0].labels"));
    check_image(put(0, "labels", 0, &[0xff, 0xff]), Some("records[0].labels"));
    check_image(put(0, "labels", 0, &[0, 0]), Some("records[0].labels"));
    // Well-formed, but no names.
    check_image(put(2, "name", 0, b"\n"), Some("records"));
    check_image(put(2, "name", 0, b"9"), Some("records"));
    check_image(put(2, "name", 0, &[0]), Some("records"));
    check_image(put(2, "help", 0, b"\x1b"), Some("records"));
    check_image(put(0, "labels", 2, b"server"), Some("records[0].labels"));
    check_image(put(0, "labels", 2, b"__abc"), Some("records"));
    check_image(put(0, "labels", 9, b"\r"), Some("records"));
}

/// Text out of a file is shown neither at length nor raw.
#[test]
fn what_was_found_is_shown_short_and_escaped() {
    let folder = folder();
    let mut image = Image::sample();
    let name = image.record(2);
    let start = image.get("RecordEntry", name, "name") as u32 as usize;
    let start = image.header("strings_offset") + start;
    image.0[start..start + 4].copy_from_slice(b"\x1b[2J");
    image.seal();
    let error = open(&image.write(folder.path())).unwrap_err();
    let message = error.to_string();
    assert!(!message.chars().any(char::is_control), "{message:?}");
    assert!(message.len() < 1000);
}

/// A kind that this build does not know is stepped over, and the rest is read.
#[test]
fn an_unknown_kind_is_stepped_over() {
    let opened = check_image(
        |image| {
            let entry = image.record(3);
            for (name, value) in [("kind", 3), ("variant", 99), ("cell", NONE), ("account", 1)] {
                image.set("RecordEntry", entry, name, value);
            }
        },
        None,
    );
    let schema = opened.unwrap().schema().clone();
    let all = sample::schema();
    assert_eq!(schema.records().len(), all.records().len() - 1);
    assert!(schema.find("workers", &[]).is_none());
    let at = schema.find("running", &[("engine", "1")]).unwrap();
    assert_eq!(schema[at].snapshot, Some(2));
    assert_eq!(schema.snapshots()[2].records.start, at.index());
}

/// A wider stride leaves room for what a later build may append.
#[test]
fn a_wider_stride_is_room() {
    let opened = check_image(
        |image| {
            let (start, stride) = (image.header("slots_offset"), image.header("slot_stride"));
            let wide = stride + 4096;
            let mut bytes = image.0[..start].to_vec();
            bytes.resize(start + 2 * wide, 0);
            // 9 pending in the first drained cell of slot 1.
            bytes[start + wide + image.header("drained_offset")] = 9;
            image.0 = bytes;
            image.set("Header", 0, "slot_stride", wide as u64);
            image.set("Header", 0, "file_size", (start + 2 * wide) as u64);
        },
        None,
    );
    let mut inspector = opened.unwrap();
    let id = inspector.schema().named("requests").next().unwrap();
    assert_eq!(inspector.totals().in_slot(1, id), 9);
}

/// A region of this stride, without blocks for anything behind its head. Nothing, where there are
/// no files of that size.
fn sparse(folder: &Path, stride: u64) -> Option<PathBuf> {
    let mut image = Image::sample();
    let start = image.header("slots_offset");
    let size = start as u64 + 2 * stride;
    image.set("Header", 0, "slot_stride", stride);
    image.set("Header", 0, "file_size", size);
    image.seal();
    image.0.truncate(start);
    let path = image.write(folder);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(size).is_ok().then_some(path)
}

/// As far apart as a header can ask for: 4 GiB from slot to slot.
#[test]
fn a_huge_sparse_region_is_looked_at_in_bounded_time() {
    bounded(|| {
        let folder = TempDir::new().unwrap();
        let Some(path) = sparse(folder.path(), 1 << 32) else {
            return eprintln!("skipped: no files of 8 GiB here");
        };
        match Inspector::open(&path) {
            Ok(mut inspector) => {
                assert_eq!(inspector.totals().get("requests"), 0);
                inspector.observe().unwrap();
            }
            // The folder for temporary files is in memory.
            Err(error) => assert_invalid(&error, "file_size"),
        }
    });
}

/// In memory, looking into a hole takes memory, or is a SIGBUS where there is none. A writer fills
/// it, or fails.
#[test]
fn holes_in_memory_are_refused_to_onlookers_and_filled_by_writers() {
    let Ok(folder) = TempDir::new_in("/dev/shm") else {
        return eprintln!("skipped: no /dev/shm here");
    };
    let path = sparse(folder.path(), 1 << 16).expect("128 KiB");
    assert_invalid(&Inspector::open(&path).unwrap_err(), "file_size");
    let mut inspector = Region::open(&path).unwrap().inspector().unwrap();
    assert_eq!(inspector.totals().get("requests"), 0);
    assert_eq!(Inspector::open(&path).unwrap().totals().get("requests"), 0);
}
