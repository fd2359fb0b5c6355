//! One drain, one writer, and a reader that takes the totals twice.

use std::sync::Arc;

use loom::thread;

use crate::check::{holds, twins_fail};
use crate::interface::Protocol;
use crate::shipped::It as Shipped;
use crate::slot::Slot;

pub(crate) const STEPPED_BACK: &str = "a total stepped back";
const MISCOUNTED: &str = "drained and pending are not what was added";

/// `slot` has a total of 4, 2 of it pending; 1 more is added while it is drained and read.
pub(crate) fn drain_and_totals_of<P: Protocol>(slot: Slot) {
    let slot = Arc::new(slot);

    let it = slot.clone();
    let writer = thread::spawn(move || P::add(&it.pending[0], 1));
    let it = slot.clone();
    let primary = thread::spawn(move || it.drain::<P, 1>()[0]);
    let it = slot.clone();
    let reader = thread::spawn(move || {
        let mut last = 4;
        for _ in 0..2 {
            if let Some([total]) = it.totals::<P, 1>(|| false) {
                assert!(last <= total, "{STEPPED_BACK}: {last}, then {total}");
                assert!(total <= 5, "a total counts more than was added: {total}");
                last = total;
            }
        }
    });

    writer.join().unwrap();
    let drained = primary.join().unwrap();
    reader.join().unwrap();
    let (pending, total) = (slot.drain::<P, 1>()[0], slot.settled::<P>());
    assert!(drained + pending == 3, "{MISCOUNTED}: {drained} + {pending}");
    assert!(total == 5, "the settled total is not what was added: {total}");
}

pub(crate) fn drain_and_totals<P: Protocol>() {
    drain_and_totals_of::<P>(Slot::drained_before::<P>());
}

#[test]
fn shipped_holds() {
    holds(Some(2), drain_and_totals::<Shipped>);
}

twins_fail!(Some(2), STEPPED_BACK, drain_and_totals:
    drain_without_fence,
    drain_fence_release,
    close_acquire,
    collect_sure_while_odd,
    sequence_end_relaxed,
    open_not_acquire,
);
