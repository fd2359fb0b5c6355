//! Paths that lead to something else than a region's file. None may hang, and none is touched.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use shmstats::{Error, Inspector, Region};

use super::image::{Image, bounded, folder, open};

fn assert_not_regular(path: &Path, expected: &str) {
    let at = path.to_path_buf();
    let error = bounded(move || open(&at).unwrap_err());
    let Error::NotARegularFile { found, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*found, expected);
    let message = error.to_string();
    assert!(message.contains("expected a regular file"), "{message}");
    assert!(message.contains(expected) && message.contains(path.to_str().unwrap()), "{message}");
}

#[test]
fn a_directory_a_fifo_a_socket_and_a_device_are_refused() {
    let folder = folder();
    assert_not_regular(folder.path(), "a directory");
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    assert_not_regular(&fifo, "a FIFO");
    let socket = folder.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    assert_not_regular(&socket, "a socket");
    for device in ["/dev/null", "/dev/zero", "/dev/tty"] {
        assert_not_regular(Path::new(device), "a device");
    }
}

#[test]
fn symbolic_links_are_refused_wherever_they_lead() {
    let folder = folder();
    let region = Image::sample().write(folder.path());
    let link = |target: &Path, name: &str| -> PathBuf {
        let path = folder.path().join(name);
        symlink(target, &path).unwrap();
        path
    };
    assert_not_regular(&link(&region, "to-region"), "a symbolic link");
    assert_not_regular(&link(Path::new("nowhere"), "dangling"), "a symbolic link");
    assert_not_regular(&link(Path::new("loop"), "loop"), "a symbolic link");
    assert_not_regular(&link(Path::new("/dev/zero"), "to-device"), "a symbolic link");
    // Nothing was made where the dangling one points.
    assert!(!folder.path().join("nowhere").exists());
    // Nor does creation follow it, or replace it.
    let dangling = folder.path().join("dangling");
    let error = Region::create(&dangling, &super::sample::schema(), 1).unwrap_err();
    assert!(matches!(error, Error::AlreadyExists { .. }), "{error:?}");
    assert!(!folder.path().join("nowhere").exists());
    let error = Region::open_or_create(&dangling, &super::sample::schema(), 1).unwrap_err();
    assert!(matches!(error, Error::NotARegularFile { .. }), "{error:?}");
}

#[test]
fn what_is_not_there_is_said_to_be_missing() {
    let folder = folder();
    for path in [folder.path().join("none"), folder.path().join("none/at/all"), PathBuf::new()] {
        let error = open(&path).unwrap_err();
        assert_eq!(error.io_kind(), Some(std::io::ErrorKind::NotFound), "{error:?}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    let error = open(&folder.path().join("x".repeat(5000))).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
}

/// Somebody may link another's file to a name where a writer expects its own; to read is harmless.
#[test]
fn a_second_name_is_refused_to_writers_only() {
    let folder = folder();
    let path = Image::sample().write(folder.path());
    std::fs::hard_link(&path, folder.path().join("other")).unwrap();
    for path in [path, folder.path().join("other")] {
        Inspector::open(&path).unwrap();
        let error = Region::open(&path).unwrap_err();
        let Error::Untrusted { expected, found, .. } = &error else { panic!("{error:?}") };
        assert_eq!(
            (expected.as_str(), found.as_str()),
            ("a file with one name", "one with 2 hard links")
        );
        assert!(error.to_string().contains(expected) && error.to_string().contains(found));
    }
}

#[test]
fn anothers_file_is_refused_to_writers_only() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can give a file away");
        return;
    }
    let folder = folder();
    let path = Image::sample().write(folder.path());
    std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
    Inspector::open(&path).unwrap();
    let error = Region::open(&path).unwrap_err();
    let Error::Untrusted { expected, found, .. } = &error else { panic!("{error:?}") };
    assert!(expected.contains("uid 0") && found == "a file of uid 12345", "{error}");
    // Unless the program says whom it trusts.
    Region::options(1).trust_uid(12345).open(&path).unwrap();
}

#[test]
fn four_gibibytes_of_nothing_are_refused_at_once() {
    let folder = folder();
    let path = folder.path().join("zeros");
    std::fs::File::create(&path).unwrap().set_len(4 << 30).unwrap();
    let at = path.clone();
    let error = bounded(move || open(&at).unwrap_err());
    super::image::assert_invalid(&error, "magic");
    // Nothing was written to it.
    use std::os::unix::fs::MetadataExt;
    assert_eq!(std::fs::metadata(&path).unwrap().blocks(), 0);
}
