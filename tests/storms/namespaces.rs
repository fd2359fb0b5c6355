//! What this user may do to build small worlds: root may do all; others may where the system lets
//! users have namespaces of their own.

use std::ffi::OsStr;
use std::process::{Command, Output};
use std::sync::OnceLock;

use nix::mount::{MsFlags, mount};

use crate::actor;

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// `unshare`, with the options that let this user use it; nothing if none do.
fn unshare() -> Option<&'static [&'static str]> {
    static WORKS: OnceLock<Option<&'static [&'static str]>> = OnceLock::new();
    *WORKS.get_or_init(|| {
        let ways: [&'static [&'static str]; 2] = [&["unshare"], &["unshare", "--map-root-user"]];
        let works = |way: &&[&str]| {
            let mut command = Command::new(way[0]);
            command.args(&way[1..]).args(["--mount", "--pid", "--fork", "--mount-proc", "true"]);
            command.output().is_ok_and(|output| output.status.success())
        };
        ways.into_iter().find(|way| works(way))
    })
}

pub(crate) fn has_namespaces() -> bool {
    unshare().is_some()
}

/// The command that starts a role in namespaces of its own.
pub(crate) fn command(options: &[&str], role: &str, arguments: &[&dyn AsRef<OsStr>]) -> Command {
    let unshare = unshare().expect("asked before whether there are any");
    actor::wrapped(&[unshare, options].concat(), role, arguments)
}

/// Runs a role in a mount namespace of its own to its end; what it says.
pub(crate) fn output(role: &str, arguments: &[&dyn AsRef<OsStr>]) -> String {
    said(command(&["--mount"], role, arguments).output().expect("a process"))
}

pub(crate) fn said(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// For a role in a mount namespace of its own: mounts a file system of this kind.
pub(crate) fn mount_at(kind: &str, place: &std::path::Path, options: &str) {
    mount(Some(kind), place, Some(kind), MsFlags::empty(), Some(options)).expect("a mount");
}

/// For a role in a mount namespace of its own: the folder again, at `place`, only to be read.
pub(crate) fn bind_read_only(folder: &std::path::Path, place: &std::path::Path) {
    let none = None::<&str>;
    mount(Some(folder), place, none, MsFlags::MS_BIND, none).expect("a bind mount");
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(none, place, none, flags, none).expect("to make it read-only");
}
