//! When a reader asks whether the primary lease is free: a question of the caller's order, not of
//! the protocol's own steps.

use loom::thread;

use crate::check::{fails, holds, on};
use crate::drain::STEPPED_BACK;
use crate::interface::Protocol;
use crate::shipped::It as Shipped;
use crate::takeover::{Region, drains_too, killed_and_read, left_behind};

type Total = Option<[u64; 1]>;

/// The next primary takes over and drains, while a reader adds 2, takes the total by `reading`,
/// which gets an answer from before all this, and once more in the right order.
fn next_and_read(reading: fn(&Region, Asked) -> Total) {
    let region = left_behind::<Shipped>("drain: after sequence", None);
    let asked = Asked { sequence: Shipped::open(&region.slot), free: region.is_free() };
    let it = region.clone();
    let primary = thread::spawn(move || {
        it.hold(true);
        Shipped::take_over(&it.slot, on);
        drains_too::<Shipped>(&it.slot);
    });
    let reader = thread::spawn(move || {
        Shipped::add(&region.slot.pending[0], 2);
        let first = reading(&region, asked);
        let then = region.totals::<Shipped, 1>();
        let both = first.zip(then);
        assert!(both.is_none_or(|(first, then)| first <= then), "{STEPPED_BACK}: {both:?}");
    });
    primary.join().unwrap();
    reader.join().unwrap();
}

/// What the lease was, and the sequence when it was asked for.
#[derive(Clone, Copy)]
struct Asked {
    sequence: u64,
    free: bool,
}

/// A reader that asks too early may take a living primary for the dead one before it.
#[test]
fn asked_before_sequence_fails() {
    fn reading(region: &Region, asked: Asked) -> Total {
        region.slot.totals::<Shipped, 1>(|| asked.free)
    }
    fails(Some(3), STEPPED_BACK, || next_and_read(reading));
}

/// Unless the sequence is still what it was before the question.
#[test]
fn asked_before_same_sequence_holds() {
    fn reading(region: &Region, asked: Asked) -> Total {
        let sequence = Shipped::open(&region.slot);
        let gone = asked.free && asked.sequence == sequence;
        region.slot.totals_since::<Shipped, 1>(sequence, gone)
    }
    holds(Some(3), || next_and_read(reading));
}

/// A reader that asks too late has read while the primary lived.
#[test]
fn asked_after_words_fails() {
    fn reading(region: &Region) -> Total {
        region.slot.totals::<Shipped, 1>(|| true).filter(|_| region.is_free())
    }
    fails(Some(2), STEPPED_BACK, || killed_and_read::<Shipped>("drain: after intent", reading));
}
