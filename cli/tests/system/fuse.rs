//! A real FUSE file system: refused, by writers and by readers.

use std::path::{Path, PathBuf};
use std::process::Command;

use shmstats::{Error, Inspector, Region};

use crate::needs;
use crate::support::{Folder, schema};

/// A folder mounted at another place, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(folder: &Path, at: PathBuf) -> Self {
        std::fs::create_dir(&at).unwrap();
        assert!(needs("bindfs", "bindfs").arg(folder).arg(&at).status().unwrap().success());
        Mounted(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn fuse_is_refused() {
    let folder = Folder::new();
    let (region, path) = folder.region("real.shmstats", 1);
    let elsewhere = Folder::new();
    let mounted = Mounted::new(folder.path(), elsewhere.file("mounted"));
    let there = mounted.0.join(path.file_name().unwrap());
    assert!(there.exists(), "the same file by another way");

    let refusals = [
        Region::open(&there).map(drop).unwrap_err(),
        Inspector::open(&there).map(drop).unwrap_err(),
        Region::create(mounted.0.join("new"), &schema(), 1).map(drop).unwrap_err(),
    ];
    for refusal in refusals {
        assert!(matches!(refusal, Error::UnsupportedFileSystem { .. }), "{refusal}");
        assert!(refusal.to_string().contains("found FUSE"), "{refusal}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
    let said = folder.run(&["check", there.to_str().unwrap()]).failed(1);
    assert!(said.contains("FUSE"), "{said}");
    drop(region);
}
