//! Every way a path can be wrong: one line that says what was expected and found, and a status.

use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;

use nix::sys::stat::Mode;
use nix::unistd::{Uid, mkfifo};

use crate::support::{Folder, write};

/// A path that is wrong, and what is said of it.
fn wrong_paths(folder: &Folder) -> Vec<(&'static str, &'static str)> {
    drop(folder.region("good.shmstats", 1));
    let good = std::fs::read(folder.file("good.shmstats")).unwrap();
    write(&folder.file("empty"), b"");
    write(&folder.file("short"), &good[..100]);
    write(&folder.file("cut"), &good[..good.len() - 4096]);
    write(&folder.file("text"), &[b'x'; 5000]);
    let with = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    write(&folder.file("newer"), &with(8, &2_u32.to_ne_bytes()));
    write(
        &folder.file("foreign"),
        &with(16, &0x0102_0304_0506_0708_u64.swap_bytes().to_ne_bytes()),
    );
    write(&folder.file("flipped"), &with(40, &[0xff]));
    std::fs::create_dir(folder.file("folder")).unwrap();
    mkfifo(&folder.file("pipe"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    symlink(folder.file("good.shmstats"), folder.file("link")).unwrap();
    let mut wrong = vec![
        ("missing", "No such file or directory"),
        ("empty", "file_size: expected at least 256 bytes, found 0 bytes"),
        ("short", "file_size: expected at least 256 bytes, found 100 bytes"),
        ("cut", "file_size: expected"),
        ("text", "magic: expected \"shmstats\", found \"xxxxxxxx\""),
        ("newer", "format version 2, but this build reads version 1"),
        ("foreign", "byte_order: expected 0x0102030405060708, found 0x0807060504030201"),
        ("flipped", "checksum: expected"),
        ("folder", "expected a regular file, found a directory"),
        ("pipe", "expected a regular file, found a FIFO"),
        ("link", "expected a regular file, found a symbolic link"),
    ];
    if !Uid::effective().is_root() {
        write(&folder.file("secret"), &good);
        let mode = std::fs::Permissions::from_mode(0o0);
        std::fs::set_permissions(folder.file("secret"), mode).unwrap();
        wrong.push(("secret", "permission denied"));
    }
    wrong
}

#[test]
fn every_command_says_in_one_line_what_is_wrong_with_a_path() {
    let folder = Folder::new();
    for (name, expected) in wrong_paths(&folder) {
        let path = folder.file(name);
        let path = path.to_str().unwrap();
        let export = if name == "folder" { "check" } else { "export" };
        for args in [
            vec!["check", path],
            vec!["inspect", path],
            vec!["inspect", path, "--json"],
            vec!["log", path],
            vec!["top", path],
            if export == "export" { vec!["export", path, "--once"] } else { vec!["check", path] },
        ] {
            let ran = folder.run(&args);
            assert_eq!(ran.out, "", "{args:?}");
            let said = ran.failed(1);
            assert!(said.contains(path) && said.contains(expected), "{args:?}: {said}");
        }
    }
}

#[test]
fn a_file_that_this_user_may_not_read() {
    let folder = Folder::new();
    let (region, path) = folder.region("shop.shmstats", 1);
    let path = path.to_str().unwrap();
    for args in [vec!["check", path], vec!["inspect", path], vec!["export", path, "--once"]] {
        let Some(ran) = folder.run_as_nobody(&args) else { return };
        let said = ran.failed(1);
        let expected = "permission denied to uid 65534; it belongs to uid 0 gid 0 with mode 0600";
        assert!(said.contains(path) && said.contains(expected), "{said}");
    }
    let ls = folder.run_as_nobody(&["ls"]).unwrap().good();
    assert!(ls.contains("unreadable") && ls.contains("permission denied"), "{ls}");
    // A group or the world may be let in: then reading is all it takes.
    drop(region);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o444)).unwrap();
    folder.run_as_nobody(&["check", path]).unwrap().good();
    let ls = folder.run_as_nobody(&["gc", "--all"]).unwrap().good();
    assert!(ls.contains("it belongs to another user"), "{ls}");
}

#[test]
fn folders_that_are_none() {
    let folder = Folder::new();
    write(&folder.file("file"), b"");
    let file = folder.file("file");
    for command in ["ls", "gc"] {
        let said = folder.run(&[command, file.to_str().unwrap()]).failed(1);
        assert!(said.ends_with("expected a directory, found a file"), "{said}");
        let said = folder.run(&[command, "/nonexistent/folder"]).failed(1);
        assert!(said.starts_with("cannot list /nonexistent/folder: No such file"), "{said}");
    }
}

#[test]
fn bad_files_are_listed_with_what_is_wrong() {
    let folder = Folder::new();
    wrong_paths(&folder);
    std::fs::rename(folder.file("text"), folder.file("text.shmstats")).unwrap();
    let out = folder.run(&["ls"]).good();
    let row = |name: &str| out.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(row("good.shmstats").contains("dead"), "{out}");
    assert!(row("newer").contains("bad") && row("newer").contains("format version 2"), "{out}");
    assert!(row("text.shmstats").contains("magic: expected"), "{out}");
    for other in ["empty", "pipe", "link", "folder"] {
        assert_eq!(row(other), "", "{out}");
    }
}

#[test]
fn wrong_usage_is_status_2() {
    let folder = Folder::new();
    for (args, expected) in [
        (vec!["inspekt"], "unrecognized subcommand 'inspekt'"),
        (vec!["inspect", "--yaml"], "unexpected argument '--yaml'"),
        (vec!["log", "--interval", "soon"], "expected a time of at least 1ms"),
        (vec!["export", "--listen", "here"], "invalid value 'here'"),
        (vec!["run", "-n", "2", "--llm"], "required arguments were not provided"),
        (vec!["run", "-n", "0", "--llm", "--", "true"], "0 is not in 1..=2048"),
        (vec!["run", "-n", "2", "--", "true"], "--schema <FILE>"),
    ] {
        let said = folder.run(&args).failed(2);
        assert!(said.contains(expected), "{args:?}: {said}");
    }
    let ran = folder.run(&[]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("Usage: shmstats"), "{}", ran.err);
    assert!(folder.run(&["--help"]).good().contains("Usage: shmstats"));
}

#[test]
fn a_broken_pipe_ends_quietly() {
    let folder = Folder::new();
    let (_region, path) = folder.region("shop.shmstats", 2);
    let path = path.to_str().unwrap();
    for args in [
        vec!["inspect", path],
        vec!["inspect", path, "--json"],
        vec!["ls"],
        vec!["check", path],
        vec!["gc", "--dry-run"],
        vec!["export", path, "--once"],
        vec!["log", path, "--interval", "1ms"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut child =
            folder.command(&args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_name_that_a_terminal_would_obey_is_spelled_out() {
    let folder = Folder::new();
    let name = "a\x1b[31m\nb.shmstats";
    drop(folder.region(name, 1));
    let out = folder.run(&["ls"]).good();
    assert!(out.contains("a\\u{1b}[31m\\nb.shmstats"), "{out}");
    write(&folder.file(name), b"");
    let path = folder.file(name);
    let said = folder.run(&["check", path.to_str().unwrap()]).failed(1);
    assert!(!said.contains('\x1b'), "{said}");
}

#[test]
fn a_region_may_be_named_as_ls_names_it() {
    let folder = Folder::new();
    let (_one, _) = folder.region("one.shmstats", 1);
    let (_two, _) = folder.region("two.shmstats", 1);
    for name in ["two.shmstats", "two"] {
        let said = folder.run(&["inspect", name]).good();
        assert!(said.contains("two.shmstats"), "{said}");
    }
    let said = folder.run(&["inspect", "three"]).failed(1);
    assert!(said.contains("cannot open three"), "{said}");
}
