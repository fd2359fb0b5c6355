//! What SECURITY.md says of one who may only read: it can make others wait, and nothing else.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use shmstats::{Error, Inspector, Region, SlotState};

use crate::actor::{Actor, Role, heard, say};
use crate::support::{Place, schema};

tests![a_reader_that_locks_everything, threads_that_claim_at_once];

pub(crate) const ROLES: &[Role] = &[("locker", locker)];

/// Takes read locks on all bytes that leases lie on, and keeps them.
fn locker(arguments: &[String]) {
    let file = File::open(&arguments[0]).expect("permission to read");
    let lock = libc::flock {
        l_type: libc::F_RDLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 1 << 40,
        l_len: 8192,
        l_pid: 0,
    };
    say(match fcntl(&file, FcntlArg::F_OFD_SETLK(&lock)) {
        Ok(_) => "ok".to_string(),
        Err(errno) => errno.to_string(),
    });
    while heard().is_some() {}
}

fn lock(path: &Path) -> Actor {
    let mut actor = Actor::start("locker", &[&path]);
    assert_eq!(actor.answer(), "ok");
    actor
}

fn a_reader_that_locks_everything() {
    let place = Place::new(2);
    let mut inspector = Inspector::open(place.path()).expect("an inspector");
    // Somebody who holds a slot is in the reader's way, and not the other way round.
    let server = place.region.claim(0).expect("a slot");
    let mut late = Actor::start("locker", &[&place.path()]);
    assert_ne!(late.answer(), "ok", "a write lock is there");
    assert!(late.end().success());
    drop(server);

    let locker = lock(&place.path());
    let observation = inspector.observe().expect("an observation");
    assert!(observation.states.iter().all(|state| *state != SlotState::Alive));
    assert!(!observation.primary.alive);
    let start = Instant::now();
    let refused = place.region.claim(0).expect_err("a lease that the reader is in the way of");
    assert!(matches!(refused, Error::Held { by_this_process: false, .. }), "{refused}");
    assert!(start.elapsed() < Duration::from_secs(20), "it waits for a bounded time");
    assert!(matches!(place.region.primary(), Err(Error::Held { .. })));
    // Whoever is let in by no one counts privately; opening and looking are possible.
    let private = shmstats::Server::join(place.path(), Some(0), &schema());
    assert!(private.region().is_private());
    drop(Region::open(place.path()).expect("to attach"));
    let (path, parts) = (place.path(), place.into_parts());
    drop(parts.0);
    let refused = Region::open(&path).expect("the region").remove();
    assert!(matches!(refused, Err(Error::Held { .. })), "{refused:?}");

    assert!(locker.end().success());
    let region = Region::open(&path).expect("the region");
    drop(region.claim(0).expect("a slot that nobody is in the way of any more"));
    region.remove().expect("to be alone");
}

/// One slot, many threads of one process: one of them at a time has it.
fn threads_that_claim_at_once() {
    let place = Place::new(1);
    for region in [place.region.clone(), Region::options(1).slots(1).private(&schema())] {
        let inside = std::sync::atomic::AtomicU32::new(0);
        let claims = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    use std::sync::atomic::Ordering::SeqCst;
                    let start = Instant::now();
                    while claims.load(SeqCst) < 200 {
                        assert!(start.elapsed() < Duration::from_secs(120), "nobody gets in");
                        match region.claim(0) {
                            Ok(server) => {
                                assert_eq!(inside.fetch_add(1, SeqCst), 0, "two owners");
                                std::thread::yield_now();
                                inside.fetch_sub(1, SeqCst);
                                claims.fetch_add(1, SeqCst);
                                drop(server);
                            }
                            Err(Error::Held { .. }) => std::thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
    }
}
