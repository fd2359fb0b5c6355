//! What the fuzzer and the property test both do with some bytes: make a file of them, and let
//! everything that opens regions at it. Errors are fine; panics, hangs and wild reads are not.

use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use shmstats::logger::{GenericLine, Line};
use shmstats::{Inspector, Region, Server, StatLogger};

/// The golden file, which inputs of the second form change.
const GOLDEN: &[u8] = include_bytes!("../tests/data/v1.shmstats");

/// Offsets in the header, as docs/format.md has them.
const RECORDS_OFFSET: usize = 48;
const STRINGS_OFFSET: usize = 64;
const STRINGS_SIZE: usize = 104;
const SCHEMA_HASH: usize = 192;
const CHECKSUM: usize = 252;

/// One input. It begins with a form:
/// - even: what follows is the file;
/// - odd: what follows are changes to the golden file: three bytes of offset, one of width, eight
///   of value each. Checksums are put right after them, so that what is behind is reached.
pub(crate) fn run(input: &[u8]) {
    let Some((form, rest)) = input.split_first() else { return look(&[]) };
    match form % 2 {
        0 => look(rest),
        _ => look(&changed(rest)),
    }
}

fn changed(changes: &[u8]) -> Vec<u8> {
    let mut file = GOLDEN.to_vec();
    for change in changes.chunks_exact(12) {
        let offset = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize;
        let offset = offset % file.len();
        let width = [1, 2, 4, 8][usize::from(change[3] % 4)].min(file.len() - offset);
        match change[3] {
            // The file's length is a field as well.
            250.. => file.truncate(offset.max(1)),
            _ => file[offset..offset + width].copy_from_slice(&change[4..4 + width]),
        }
    }
    seal(&mut file);
    file
}

fn seal(file: &mut [u8]) {
    let word = |file: &[u8], at: usize| -> Option<usize> {
        let bytes = file.get(at..at + 8)?.try_into().ok()?;
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let strings = (word(file, STRINGS_OFFSET), word(file, STRINGS_SIZE));
    if let (Some(start), (Some(offset), Some(size))) = (word(file, RECORDS_OFFSET), strings) {
        let end = offset.saturating_add(size & 0xffff_ffff);
        let hash = file.get(start..end).map(crc32fast::hash);
        if let (Some(hash), Some(place)) = (hash, file.get_mut(SCHEMA_HASH..SCHEMA_HASH + 4)) {
            place.copy_from_slice(&hash.to_le_bytes());
        }
    }
    let checksum = file.get(..CHECKSUM).map(crc32fast::hash);
    if let (Some(sum), Some(place)) = (checksum, file.get_mut(CHECKSUM..CHECKSUM + 4)) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
}

fn look(bytes: &[u8]) {
    // One file for all inputs, each behind the other: leases are on files.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut file = tempfile::Builder::new().tempfile_in("/dev/shm").expect("a file");
    file.write_all(bytes).and_then(|()| file.rewind()).expect("to write it");
    assert!(file.as_raw_fd() >= 0);
    read(file.path());
    write(file.path());
    read(file.path());
}

fn read(path: &Path) {
    let Ok(mut inspector) = Inspector::open(path) else { return };
    let _ = format!("{:?} {:?}", inspector.region(), inspector.schema());
    let _ = format!("{:?}", inspector.totals());
    let observation = inspector.observe().expect("the kernel's answer");
    let _ = format!("{observation:?}");
    let schema = inspector.schema().clone();
    for record in schema.records() {
        let _ = observation.gauge(&record.name);
        for id in schema.named(&record.name) {
            let _ = (observation.gauge_of(id), inspector.last_totals().of(id));
        }
    }
    let mut watch = inspector.watch();
    let interval = watch.interval().expect("the kernel's answer");
    let _ = GenericLine::default().line(&interval);
}

fn write(path: &Path) {
    let Ok(region) = Region::open(path) else { return };
    let mut primary = region.primary().expect("a lease that nobody holds");
    let _ = GenericLine::default().line(&primary.drain());
    let server: Server = region.claim_any().expect("a slot that nobody holds");
    use_all(&server);
    let _ = GenericLine::default().line(&primary.drain());
    primary.reset();
    drop(primary);
    StatLogger::builder(&server).build().tick();
}

/// Every handle that the file's own schema has.
fn use_all(server: &Server) {
    let schema = server.region().schema().clone();
    for record in schema.records() {
        let labels: Vec<(&str, &str)> =
            record.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        if let Ok(counter) = server.counter_with(&record.name, &labels) {
            counter.add(u64::MAX);
        }
        if let Ok(mut counter) = server.single_writer_with(&record.name, &labels) {
            counter.add(3);
        }
        if let Ok(gauge) = server.gauge_with::<i64>(&record.name, &labels) {
            gauge.set(i64::MIN);
            gauge.sub(1);
        }
        if let Ok(gauge) = server.gauge_with::<f64>(&record.name, &labels) {
            gauge.set(f64::MAX);
        }
    }
    for shape in schema.snapshots() {
        let labels: Vec<(&str, &str)> =
            shape.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        if let Ok(mut snapshot) = server.snapshot(&shape.name, &labels) {
            snapshot.publish();
        }
    }
}
