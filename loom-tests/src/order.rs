//! Counters added in declared order: no reading shows more hits than queries (P1).

use std::sync::Arc;

use loom::thread;

use crate::check::{holds, on, twins_fail};
use crate::interface::Protocol;
use crate::shipped::It as Shipped;
use crate::slot::Slot;

const NO_CAUSE: &str = "more hits than queries";

/// Drained counters, and the totals a reader takes.
pub(crate) fn totals_in_order<P: Protocol>() {
    let slot = Arc::new(Slot::new(2, 0));

    let it = slot.clone();
    let writer = thread::spawn(move || {
        P::add(&it.pending[0], 1);
        P::add(&it.pending[1], 1);
    });
    let it = slot.clone();
    let primary = thread::spawn(move || it.drain::<P, 2>());
    let it = slot.clone();
    let reader = thread::spawn(move || {
        if let Some([queries, hits]) = it.totals::<P, 2>(|| false) {
            assert!(hits <= queries, "{NO_CAUSE} in the totals: {hits} of {queries}");
        }
    });

    writer.join().unwrap();
    primary.join().unwrap();
    reader.join().unwrap();
}

/// Drained counters, and what one drain takes of them. A third counter, declared last, has
/// something to drain, so that the drain starts before the first query.
pub(crate) fn interval_in_order<P: Protocol>() {
    let slot = Arc::new(Slot::new(3, 0));
    P::add(&slot.pending[2], 1);

    let it = slot.clone();
    let writer = thread::spawn(move || {
        P::add(&it.pending[0], 1);
        P::add(&it.pending[1], 1);
    });
    let it = slot.clone();
    let primary = thread::spawn(move || {
        let [queries, hits, _] = it.drain::<P, 3>();
        assert!(hits <= queries, "{NO_CAUSE} in an interval: {hits} of {queries}");
    });

    writer.join().unwrap();
    primary.join().unwrap();
}

/// Single-writer counters. The primary's deltas and a reader's totals.
fn single_writer_in_order<P: Protocol>() {
    let slot = Arc::new(Slot::new(0, 2));

    let it = slot.clone();
    let writer = thread::spawn(move || {
        P::add_single_writer(&it.single[0], 1);
        P::add_single_writer(&it.single[1], 1);
    });
    let it = slot.clone();
    let primary = thread::spawn(move || {
        let mut single = [0; 2];
        P::drain(&it, &mut [], &mut single, on);
        let [queries, hits] = single;
        assert!(hits <= queries, "{NO_CAUSE} in an interval: {hits} of {queries}");
    });
    let it = slot.clone();
    let reader = thread::spawn(move || {
        let mut single = [0; 2];
        let sequence = P::open(&it);
        P::collect(&it, sequence, false, &mut [], &mut single);
        P::close();
        let [queries, hits] = single;
        assert!(hits <= queries, "{NO_CAUSE} in the totals: {hits} of {queries}");
    });

    writer.join().unwrap();
    primary.join().unwrap();
    reader.join().unwrap();
}

#[test]
fn shipped_totals_hold() {
    holds(Some(2), totals_in_order::<Shipped>);
}

#[test]
fn shipped_interval_holds() {
    holds(None, interval_in_order::<Shipped>);
}

#[test]
fn shipped_single_writer_holds() {
    holds(Some(2), single_writer_in_order::<Shipped>);
}

twins_fail!(Some(2), NO_CAUSE, totals_in_order: add_relaxed, collect_forward, collect_not_acquire);
twins_fail!(None, NO_CAUSE, interval_in_order: drain_forward, swap_not_acquire);
twins_fail!(Some(2), NO_CAUSE, single_writer_in_order:
    add_single_writer_relaxed,
    watermarks_forward,
    watermarks_not_acquire,
    collect_single_forward,
    collect_single_not_acquire,
);
