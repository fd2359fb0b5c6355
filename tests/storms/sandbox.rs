//! Sandboxes that lack what a shared region needs: serving goes on, with private stats.
#![allow(unsafe_code)]

use std::path::Path;

use nix::libc;
use shmstats::{Error, Server, StatLogger};

use crate::actor::{Role, command};
use crate::namespaces::{self, mount_at, said};
use crate::room::{say_warnings, warnings};
use crate::support::{Place, publish_load, schema};

tests![without_locks_and_memfd];

/// Those that need a mount namespace.
pub(crate) mod mounted {
    use super::*;
    tests![without_proc];
}

pub(crate) const ROLES: &[Role] = &[("no_proc", no_proc), ("no_calls", no_calls)];

/// A server that cannot have the region: it counts for itself, and its line is whole.
fn serve(region: &str) {
    let server = Server::join(region, Some(0), &schema());
    assert!(server.region().is_private());
    server.counter("prompt").expect("a counter").add(2);
    publish_load(&server, "load", 7, 0, None);
    let mut primary = server.region().primary().expect("the lease");
    let held = server.region().primary().expect_err("one primary");
    assert!(matches!(held, Error::Held { by_this_process: true, .. }), "{held}");
    primary.probe().expect("who is alive");
    let interval = primary.drain();
    assert_eq!((interval.delta("prompt"), interval.gauge("load_running")), (2, Some(7.0)));
    drop(primary);
    let held = server.region().claim(0).expect_err("it has one slot, and holds it");
    assert!(matches!(held, Error::Held { by_this_process: true, .. }), "{held}");
    let mut inspector = server.region().inspector().expect("an inspector");
    let observation = inspector.observe().expect("an observation");
    assert_eq!(observation.gauge("load_running"), Some(7.0));
    StatLogger::builder(&server).build().tick();
    let region = server.region().clone();
    drop(server);
    drop(region.claim(0).expect("a slot that was given back"));
}

fn no_proc(arguments: &[String]) {
    say_warnings();
    mount_at("tmpfs", Path::new("/proc"), "");
    serve(&arguments[0]);
}

fn without_proc() {
    let place = Place::new(1);
    let text = namespaces::output("no_proc", &[&place.path()]);
    assert_eq!(warnings(&text), 1, "{text}");
}

/// A filter of system calls, for this thread and those it starts: no open file description locks,
/// and no memfd.
fn forbid_calls() {
    const F_OFD: std::ops::RangeInclusive<u32> = 36..=38;
    const ARGUMENT_1: u32 = 24;
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let jump =
        |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let (equal, above) =
        (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K);
    let answer = libc::BPF_RET | libc::BPF_K;
    let fails = |errno: i32| libc::SECCOMP_RET_ERRNO | errno as u32;
    let mut filter = [
        statement(load, 0), // the number of the call
        jump(equal, libc::SYS_memfd_create as u32, 5, 0),
        jump(equal, libc::SYS_fcntl as u32, 0, 3),
        statement(load, ARGUMENT_1),
        jump(above, F_OFD.end().to_owned(), 1, 0),
        jump(above, F_OFD.start() - 1, 2, 0),
        statement(answer, libc::SECCOMP_RET_ALLOW),
        statement(answer, fails(libc::EPERM)),
        statement(answer, fails(libc::EINVAL)),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: no memory is handed over.
    let private = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: `program` and the filter it points to live until the call returns, which copies them.
    let set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!((private, set), (0, 0), "{}", std::io::Error::last_os_error());
}

fn no_calls(arguments: &[String]) {
    say_warnings();
    forbid_calls();
    serve(&arguments[0]);
}

fn without_locks_and_memfd() {
    let place = Place::new(1);
    let text = said(command("no_calls", &[&place.path()]).output().expect("a process"));
    assert_eq!(warnings(&text), 1, "{text}");
    assert!(text.contains("Invalid argument"), "what was refused: {text}");
}
