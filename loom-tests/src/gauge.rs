//! A lone gauge: present means that the value is there, and a reset hides what was set before it.

use std::sync::Arc;

use loom::thread;

use crate::check::{holds, twins_fail};
use crate::interface::Protocol;
use crate::shipped::It as Shipped;
use crate::sync::{AtomicU64, Ordering};

const UNSET: &str = "a value that was not set";
const OLD: &str = "a value from before the reset";
const HIDDEN: &str = "a value set after the reset is hidden";

pub(crate) struct Gauge {
    pub(crate) value: AtomicU64,
    pub(crate) mark: AtomicU64,
    pub(crate) reset: AtomicU64,
}

impl Gauge {
    pub(crate) fn new() -> Self {
        Self { value: AtomicU64::new(0), mark: AtomicU64::new(0), reset: AtomicU64::new(0) }
    }

    pub(crate) fn set<P: Protocol>(&self, bits: u64) {
        P::set(&self.value, &self.mark, &self.reset, bits);
    }

    pub(crate) fn read<P: Protocol>(&self, reset_number: u64) -> Option<u64> {
        P::read_gauge(&self.value, &self.mark, reset_number)
    }
}

/// The first value.
fn set_and_read<P: Protocol>() {
    let gauge = Arc::new(Gauge::new());
    let it = gauge.clone();
    let owner = thread::spawn(move || it.set::<P>(7));
    let it = gauge;
    let reader = thread::spawn(move || {
        let read = it.read::<P>(0);
        assert!(matches!(read, None | Some(7)), "{UNSET}: {read:?}");
    });
    owner.join().unwrap();
    reader.join().unwrap();
}

/// 7 is set, then the region is reset while 8 is set.
fn reset_and_read<P: Protocol>() {
    let gauge = Arc::new(Gauge::new());
    gauge.set::<P>(7);
    let it = gauge.clone();
    let owner = thread::spawn(move || it.set::<P>(8));
    let it = gauge.clone();
    let primary = thread::spawn(move || it.reset.store(1, Ordering::Release));
    let it = gauge;
    let reader = thread::spawn(move || {
        let number = it.reset.load(Ordering::Acquire);
        let read = it.read::<P>(number);
        assert!(number == 0 || read != Some(7), "{OLD}: {read:?}");
    });
    owner.join().unwrap();
    primary.join().unwrap();
    reader.join().unwrap();
}

/// Two threads of the owner set it, one of them knowing of the reset.
fn two_set_around_a_reset<P: Protocol>() {
    let gauge = Arc::new(Gauge::new());
    let it = gauge.clone();
    let one = thread::spawn(move || it.set::<P>(7));
    let it = gauge.clone();
    let other = thread::spawn(move || {
        it.reset.store(1, Ordering::Relaxed);
        it.set::<P>(8);
    });
    one.join().unwrap();
    other.join().unwrap();
    assert!(gauge.read::<P>(1).is_some(), "{HIDDEN}");
}

#[test]
fn shipped_set_holds() {
    holds(None, set_and_read::<Shipped>);
}

#[test]
fn shipped_reset_holds() {
    holds(None, reset_and_read::<Shipped>);
}

#[test]
fn shipped_two_set_holds() {
    holds(None, two_set_around_a_reset::<Shipped>);
}

twins_fail!(None, UNSET, set_and_read: show_relaxed, read_gauge_not_acquire);
twins_fail!(None, OLD, reset_and_read: show_before_value);
twins_fail!(None, HIDDEN, two_set_around_a_reset: show_stored);
