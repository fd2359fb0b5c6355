//! No room: on the file system, among the slots, and after the file was removed.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use shmstats::{Error, Inspector, Region, Server, StatLogger};

use crate::actor::{Role, command, say};
use crate::namespaces::{self, mount_at, said};
use crate::support::{Place, schema};

tests![more_servers_than_slots, a_file_removed_under_its_servers, a_disk_file_system,];

/// Those that need a mount namespace.
pub(crate) mod mounted {
    use super::*;
    tests![a_tmpfs_that_is_too_small, a_sparse_copy_on_a_full_tmpfs];
}

/// Those that need a file system which only root may mount.
pub(crate) mod as_root {
    use super::*;
    tests![a_file_system_without_reservations];
}

pub(crate) const ROLES: &[Role] = &[
    ("too_small", too_small),
    ("sparse", sparse),
    ("crowd", crowd),
    ("removed", removed),
    ("on_disk", on_disk),
    ("ramfs", ramfs),
];

/// Says warnings as they come.
pub(crate) fn say_warnings() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stdout)
        .with_ansi(false)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();
}

pub(crate) fn warnings(text: &str) -> usize {
    text.lines().filter(|line| line.contains(" WARN ")).count()
}

/// Mount point: a region of a megabyte on 128 KiB.
fn too_small(arguments: &[String]) {
    say_warnings();
    let folder = Path::new(&arguments[0]);
    mount_at("tmpfs", folder, "size=128k");
    let (path, options) = (folder.join("big.shmstats"), Region::options(512));
    let refused = options.create(&path, &schema()).expect_err("too big");
    assert_eq!(refused.io_kind(), Some(std::io::ErrorKind::StorageFull), "{refused}");
    say(&refused);
    assert_eq!(std::fs::read_dir(folder).expect("the folder").count(), 0, "left behind");
    let region = options.open_or_private(&path, &schema());
    assert!(region.is_private() && region.slot_count() == 1024);
    region.claim(0).expect("a slot").counter("prompt").expect("a counter").add(5);
    assert_eq!(region.primary().expect("the lease").drain().delta("prompt"), 5);
    // The room that was refused is still there for a region that fits.
    let small = Region::options(1).create(folder.join("small"), &schema()).expect("a region");
    small.claim(1).expect("a slot").counter("prompt").expect("a counter").add(1);
}

fn a_tmpfs_that_is_too_small() {
    let point = tempfile::tempdir().expect("a folder");
    let text = namespaces::output("too_small", &[&point.path()]);
    assert!(text.contains("big.shmstats: No space left"), "names the file and the cause: {text}");
    assert_eq!(warnings(&text), 1, "one for the private region: {text}");
}

/// Mount point: a copy of a region with holes, where no hole can be filled.
fn sparse(arguments: &[String]) {
    let folder = Path::new(&arguments[0]);
    mount_at("tmpfs", folder, "size=256k");
    let whole = folder.join("whole");
    let region = Region::options(8).create(&whole, &schema()).expect("a region");
    region.claim(0).expect("a slot").counter("prompt").expect("a counter").add(3);
    drop(region);
    let bytes = std::fs::read(&whole).expect("its bytes");
    std::fs::remove_file(&whole).expect("the file");
    let path = folder.join("sparse");
    let file = File::create(&path).expect("a file");
    file.set_len(bytes.len() as u64).expect("its length");
    (&file).write_all(&bytes[..8192]).expect("the head and the first slot");
    let mut ballast = File::create(folder.join("ballast")).expect("a file");
    while ballast.write_all(&[1; 4096]).is_ok() {}
    let refused = Region::open(&path).expect_err("no room for its holes");
    assert_eq!(refused.io_kind(), Some(std::io::ErrorKind::StorageFull), "{refused}");
    // A reader cannot fill them either, and must not die of it.
    let refused = Inspector::open(&path).expect_err("no room for its holes");
    say(refused);
    drop(ballast);
    std::fs::remove_file(folder.join("ballast")).expect("the file");
    let region = Region::open(&path).expect("room");
    assert_eq!(region.claim(0).expect("a slot").slot(), 0);
    let mut inspector = Inspector::open(&path).expect("no holes any more");
    assert_eq!(inspector.totals().get("prompt"), 3);
}

fn a_sparse_copy_on_a_full_tmpfs() {
    let point = tempfile::tempdir().expect("a folder");
    let refused = namespaces::output("sparse", &[&point.path()]);
    assert!(refused.contains("sparse"), "{refused}");
}

/// Region with two slots, both held.
fn crowd(arguments: &[String]) {
    say_warnings();
    let server = Server::join(&arguments[0], Some(0), &schema());
    assert!(server.region().is_private());
    server.counter("prompt").expect("a counter").add(1);
}

fn more_servers_than_slots() {
    let place = Place::new(1);
    let _held = [0, 1].map(|slot| place.region.claim(slot).expect("a slot"));
    let text = said(command("crowd", &[&place.path()]).output().expect("a process"));
    assert_eq!(warnings(&text), 1, "{text}");
    assert!(text.contains("all 2 slots are held"), "{text}");
    let mut inspector = Inspector::open(place.path()).expect("an inspector");
    assert_eq!(inspector.observe().expect("an observation").refused_servers, 1);
}

/// Region: its file is removed, and the servers go on.
fn removed(arguments: &[String]) {
    say_warnings();
    let region = Region::open(&arguments[0]).expect("the region");
    let server = region.claim(0).expect("a slot");
    let mut logger = StatLogger::builder(&server).build();
    std::fs::remove_file(&arguments[0]).expect("the file");
    let counter = server.counter("prompt").expect("a counter");
    for _ in 0..3 {
        counter.add(1);
        logger.tick();
    }
    let mut inspector = region.inspector().expect("an inspector");
    assert_eq!(inspector.totals().get("prompt"), 3, "they go on");
    assert!(!inspector.is_at_its_path());
    assert!(matches!(region.claim(1), Err(Error::Removed { .. })));
}

fn a_file_removed_under_its_servers() {
    let place = Place::new(1);
    let text = said(command("removed", &[&place.path()]).output().expect("a process"));
    assert_eq!(warnings(&text), 1, "{text}");
    assert!(text.contains("was removed") && text.contains("RemoveIPC"), "{text}");
}

/// Path on a disk.
fn on_disk(arguments: &[String]) {
    say_warnings();
    let region = Region::create(&arguments[0], &schema(), 1).expect("a region");
    region.claim(0).expect("a slot").counter("prompt").expect("a counter").add(1);
}

fn a_disk_file_system() {
    // Cargo's folder for the files of tests.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    if statfs(folder.path()).expect("its file system").filesystem_type() == TMPFS_MAGIC {
        println!("not run: the target folder is in memory, so there is no disk to try");
        return;
    }
    let path = folder.path().join("disk.shmstats");
    let text = said(command("on_disk", &[&path]).output().expect("a process"));
    assert_eq!(warnings(&text), 1, "{text}");
    assert!(text.contains("disk file system") && text.contains("/dev/shm"), "{text}");
}

/// Mount point: a file system that has no fallocate(2). While one server sets a gauge in the last
/// word of the file, others open the region, which must not write to it.
fn ramfs(arguments: &[String]) {
    let folder = Path::new(&arguments[0]);
    mount_at("ramfs", folder, "");
    let path = folder.join("region");
    let region = Region::options(8).create(&path, &schema()).expect("a region");
    let raw = crate::ack::Raw::open(&path);
    // The last word of the last slot: nobody else writes it.
    let word = raw.word(raw.len() - 1);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2000 {
                drop(Region::open(&path).expect("the region"));
            }
            stop.store(true, relaxed);
        });
        while !stop.load(relaxed) {
            word.store(0, relaxed);
            word.store(u64::MAX, relaxed);
            for _ in 0..20 {
                assert_eq!(word.load(relaxed), u64::MAX, "written over by one who opened");
            }
        }
    });
    region.claim(0).expect("a slot").counter("prompt").expect("a counter").add(1);
    say("ok");
}

fn a_file_system_without_reservations() {
    let point = tempfile::tempdir().expect("a folder");
    assert_eq!(namespaces::output("ramfs", &[&point.path()]), "ok\n");
}
