//! gc removes what is dead and nothing else.

use crate::support::{Folder, Process, write};

fn outcome(out: &str, name: &str) -> String {
    let line = out.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{out}"));
    line.split_whitespace().next().unwrap().into()
}

#[test]
fn the_newest_dead_one_of_each_name_stays() {
    let folder = Folder::new();
    for name in ["shop-1.shmstats", "shop-2.shmstats", "shop-3.shmstats", "till-9.shmstats"] {
        drop(folder.region(name, 1));
    }
    let (region, path) = folder.region("shop-4.shmstats", 1);
    let server = Process::server(&path, 0);
    drop(region);
    write(&folder.file("notes.txt"), b"not ours");
    write(&folder.file("bad.shmstats"), b"shmstats and then nothing");

    let dry = folder.run(&["gc", "--dry-run"]).good();
    assert_eq!(dry.matches("would remove").count(), 2, "{dry}");
    assert!(folder.file("shop-1.shmstats").exists());

    let out = folder.run(&["gc"]).good();
    assert_eq!(outcome(&out, "shop-1"), "removed");
    assert_eq!(outcome(&out, "shop-2"), "removed");
    assert!(out.contains("shop-3.shmstats: the newest dead one of its name"), "{out}");
    assert!(out.contains("till-9.shmstats: the newest dead one of its name"), "{out}");
    assert!(out.contains("shop-4.shmstats: somebody is attached"), "{out}");
    assert!(out.contains("bad.shmstats: not a region"), "{out}");
    assert!(!out.contains("notes.txt"), "{out}");

    server.kill();
    let out = folder.run(&["gc", "--all"]).good();
    assert_eq!(out.matches("removed").count(), 3, "{out}");
    let mut left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["bad.shmstats", "notes.txt"]);
}

#[test]
fn a_region_that_a_primary_drains_stays() {
    let folder = Folder::new();
    let (region, path) = folder.region("shop.shmstats", 1);
    let _primary = Process::primary(&path);
    drop(region);
    assert_eq!(outcome(&folder.run(&["gc", "--all"]).good(), "shop"), "kept");
    assert!(path.exists());
}

#[test]
fn what_was_left_in_the_making_goes_once_it_is_old() {
    let folder = Folder::new();
    let (region, path) = folder.region("shop.shmstats", 1);
    let mut bytes = std::fs::read(&path).unwrap();
    drop(region);
    write(&folder.file(".shmstats-1-2"), &bytes);
    assert!(!folder.run(&["ls"]).good().contains(".shmstats-1-2"), "it is no region yet");
    let out = folder.run(&["gc"]).good();
    assert!(out.contains(".shmstats-1-2: it is being made"), "{out}");
    // Made an hour ago: `created_at` lies at 152, the head's checksum at 252.
    let created = u64::from_ne_bytes(bytes[152..160].try_into().unwrap());
    bytes[152..160].copy_from_slice(&(created - 3_600_000_000_000).to_ne_bytes());
    crate::support::seal(&mut bytes);
    write(&folder.file(".shmstats-1-2"), &bytes);
    let out = folder.run(&["gc"]).good();
    assert_eq!(outcome(&out, ".shmstats-1-2"), "removed");
    assert_eq!(outcome(&out, "shop.shmstats"), "kept");
}

#[test]
fn another_user_s_regions_stay() {
    // Only root can give a file away.
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let folder = Folder::new();
    let (region, path) = folder.region("shop.shmstats", 1);
    drop(region);
    std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
    let out = folder.run(&["gc", "--all"]).good();
    assert!(out.contains("shop.shmstats: it belongs to another user"), "{out}");
    assert!(path.exists());
}
