//! Every hot path a thousand times between two marks, for `no_syscalls.sh` to look at with strace.

use std::hint::black_box;

use nix::libc;
use shmstats::{Inspector, monotonic_ns};

use crate::setting::{Setting, everything};

/// The argument that asks for this.
pub(crate) const ARGUMENT: &str = "--hot-paths";

/// Runs them.
pub(crate) fn run() {
    let setting = Setting::new(true);
    let (region, servers) = setting.full_region("hot", &everything(), 64);
    let server = &servers[0];
    let drained = server.counter("c0").expect("declared");
    let mut single = server.single_writer("s0").expect("declared");
    let gauge = server.gauge::<u64>("lone").expect("declared");
    let mut snapshot = server.snapshot("load", &[]).expect("declared");
    let field = snapshot.field::<u64>("v0").expect("declared");
    let mut primary = region.primary().expect("the only primary");
    let mut interval = primary.interval();
    let mut inspector = Inspector::open(region.path()).expect("a region to look at");

    let mut all = || {
        for _ in 0..1000 {
            drained.add(black_box(1));
            single.add(black_box(1));
            gauge.set(black_box(1));
            snapshot.set(field, black_box(1));
            snapshot.publish();
            snapshot.publish_at(monotonic_ns());
            primary.drain_into(&mut interval);
            black_box(inspector.totals());
        }
    };
    all();
    mark();
    all();
    mark();
}

/// A system call that nothing else here makes.
fn mark() {
    // SAFETY: takes nothing and changes nothing.
    unsafe { libc::getsid(0) };
}
