//! A snapshot is read whole or not at all, also after a writer that died while publishing.

use std::sync::Arc;

use loom::thread;

use crate::check::{holds, killed_at, on, twins_fail};
use crate::interface::Protocol;
use crate::protocol::snapshot::HEAD_WORDS;
use crate::shipped::It as Shipped;
use crate::slot::zeros;
use crate::sync::AtomicU64;

const TORN: &str = "a snapshot is torn";

type Words = Arc<Vec<AtomicU64>>;

/// Two values, both 1, published under sequence 2.
fn published<P: Protocol>() -> Words {
    let words = Arc::new(zeros(HEAD_WORDS + 2));
    P::publish(&words, 0, &[1, 1], on);
    words
}

/// A writer publishes 2 and 2 under `sequence`, while a reader finds those or what was before:
/// 1 and 1 under sequence 2, unless that is gone.
fn read_whole<P: Protocol>(words: Words, sequence: u64) {
    let it = words.clone();
    let writer = thread::spawn(move || P::publish(&it, 0, &[2, 2], on));
    let it = words;
    let reader = thread::spawn(move || {
        let mut values = [0; 2];
        if let Some((seen, present)) = P::read_snapshot(&it, &mut values) {
            let whole = match values {
                [1, 1] => seen == 2 && sequence == 4 && present == 3,
                [2, 2] => seen == sequence && present == 3,
                _ => false,
            };
            assert!(whole, "{TORN}: {values:?}, present {present}, sequence {seen}");
        }
    });
    writer.join().unwrap();
    reader.join().unwrap();
}

fn publish_and_read<P: Protocol>() {
    read_whole::<P>(published::<P>(), 4);
}

/// The first publication of all.
fn publish_first_and_read<P: Protocol>() {
    read_whole::<P>(Arc::new(zeros(HEAD_WORDS + 2)), 2);
}

/// The last writer died with one value of two written, and the sequence at 3.
fn publish_after_death<P: Protocol>() {
    let words = published::<P>();
    let killed = killed_at("publish: after value", |hook| P::publish(&words, 0, &[3, 3], hook));
    assert!(killed, "there is no such step");
    assert_eq!(P::read_snapshot(&words, &mut [0; 2]), None, "{TORN}: read half written");

    let it = words.clone();
    let writer = thread::spawn(move || P::publish(&it, 0, &[2, 2], on));
    let it = words;
    let reader = thread::spawn(move || {
        let mut values = [0; 2];
        if let Some((seen, _)) = P::read_snapshot(&it, &mut values) {
            assert!(values == [2, 2], "{TORN}: {values:?}, sequence {seen}");
        }
    });
    writer.join().unwrap();
    reader.join().unwrap();
}

#[test]
fn shipped_publish_holds() {
    holds(Some(2), publish_and_read::<Shipped>);
}

#[test]
fn shipped_first_publish_holds() {
    holds(Some(2), publish_first_and_read::<Shipped>);
}

#[test]
fn shipped_publish_after_death_holds() {
    holds(Some(2), publish_after_death::<Shipped>);
}

twins_fail!(Some(2), TORN, publish_and_read:
    publish_without_fence,
    publish_end_relaxed,
    read_first_not_acquire,
    read_second_not_acquire,
);

twins_fail!(Some(2), TORN, publish_after_death: publish_plus_one);
