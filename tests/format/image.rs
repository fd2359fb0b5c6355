//! A region's bytes, to be patched by the names that docs/format.md gives them, and what the
//! library says to the result.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use shmstats::{Error, Inspector, Region};
use tempfile::TempDir;

use super::{doc, sample};

/// No region here is large: whatever takes longer hangs, or works through a size it was given.
const BOUND: Duration = Duration::from_secs(60);

/// Runs `work` and fails if it does not end.
pub(crate) fn bounded<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, finished) = channel();
    let thread = std::thread::spawn(move || done.send(work()));
    match finished.recv_timeout(BOUND) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("still at it after {BOUND:?}"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("the result was sent or the thread panicked"),
        },
    }
}

/// Offset and size of a field in its table.
pub(crate) fn field(table: &str, name: &str) -> (usize, usize) {
    let rows = doc::rows(table);
    let row = rows.iter().find(|row| row.name == name);
    let row = row.unwrap_or_else(|| panic!("table {table} has no row {name}"));
    (doc::value(&row.offset, &[]) as usize, doc::value(&row.size, &[]) as usize)
}

/// A folder in memory, where there is one: thousands of files are opened here.
pub(crate) fn folder() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

#[derive(Clone)]
pub(crate) struct Image(pub(crate) Vec<u8>);

impl Image {
    /// A new region of the sample schema, with two slots.
    pub(crate) fn sample() -> Self {
        let folder = folder();
        let path = folder.path().join("r");
        drop(Region::options(2).slots(2).create(&path, &sample::schema()).unwrap());
        Image(std::fs::read(path).unwrap())
    }

    pub(crate) fn golden() -> Self {
        Image(include_bytes!("../data/v1.shmstats").to_vec())
    }

    /// A field of up to 8 bytes of the table that begins at `base`.
    pub(crate) fn get(&self, table: &str, base: usize, name: &str) -> u64 {
        let (at, size) = field(table, name);
        let (size, mut bytes) = (size.min(8), [0; 8]);
        bytes[..size].copy_from_slice(&self.0[base + at..base + at + size]);
        u64::from_ne_bytes(bytes)
    }

    pub(crate) fn set(&mut self, table: &str, base: usize, name: &str, value: u64) {
        let (at, size) = field(table, name);
        let size = size.min(8);
        self.0[base + at..base + at + size].copy_from_slice(&value.to_ne_bytes()[..size]);
    }

    pub(crate) fn header(&self, name: &str) -> usize {
        self.get("Header", 0, name) as usize
    }

    /// Where a record entry begins.
    pub(crate) fn record(&self, i: usize) -> usize {
        self.header("records_offset") + i * self.header("record_size")
    }

    /// Where a snapshot entry begins.
    pub(crate) fn snapshot(&self, i: usize) -> usize {
        self.header("snapshots_offset") + i * self.header("snapshot_size")
    }

    pub(crate) fn strings_end(&self) -> usize {
        self.header("strings_offset").saturating_add(self.header("strings_size"))
    }

    /// Makes both checksums right, so that what was patched is not found by them.
    pub(crate) fn seal(&mut self) {
        let (start, end) = (self.header("records_offset"), self.strings_end());
        if let Some(tables) = self.0.get(start..end) {
            let hash = crc32fast::hash(tables);
            self.set("Header", 0, "schema_hash", hash.into());
        }
        let (at, _) = field("Header", "checksum");
        let checksum = crc32fast::hash(&self.0[..at]);
        self.set("Header", 0, "checksum", checksum.into());
    }

    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("image");
        std::fs::write(&path, &self.0).unwrap();
        path
    }
}

/// What reader and writer say to a file, which must be the same.
pub(crate) fn open(path: &Path) -> Result<Inspector, Error> {
    let (reader, writer) = (Inspector::open(path), Region::open(path));
    match (&reader, &writer) {
        (Ok(_), Ok(_)) => {}
        (Err(a), Err(b)) => assert_eq!(format!("{a:?}"), format!("{b:?}")),
        (a, b) => panic!("reader: {a:?}, writer: {b:?}"),
    }
    reader
}

/// Asserts that the error says which field is wrong, and shows what was expected and found.
#[track_caller]
pub(crate) fn assert_invalid(error: &Error, expected_field: &str) {
    let Error::InvalidRegion { path, field, expected, found, .. } = error else {
        panic!("expected InvalidRegion of {expected_field}, got {error:?}");
    };
    assert_eq!(field, expected_field, "{error}");
    assert!(!expected.is_empty() && !found.is_empty() && expected != found, "{error}");
    let message = error.to_string();
    for part in [path.to_str().unwrap(), expected.as_str(), found.as_str()] {
        assert!(message.contains(part), "{message}");
    }
}

#[track_caller]
pub(crate) fn assert_refused(path: &Path, expected_field: &str) {
    match open(path) {
        Err(error) => assert_invalid(&error, expected_field),
        Ok(_) => panic!("opened, but {expected_field} is wrong"),
    }
}
