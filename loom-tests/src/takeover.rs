//! A primary that is killed at any step of its drain, and the next one.
//!
//! The lease is a word here that is only swapped: whoever asks for it later sees the later state,
//! and all that was stored before that came about, as with the kernel's locks.

use std::sync::Arc;

use loom::thread;

use crate::check::{holds, killed_at, on, twins_fail};
use crate::drain::{STEPPED_BACK, drain_and_totals_of};
use crate::interface::Protocol;
use crate::shipped::It as Shipped;
use crate::slot::Slot;
use crate::sync::{AtomicU64, Ordering};

const OVERCOUNTED: &str = "a total counts more than was added";
const NO_CAUSE: &str = "more hits than queries";

/// One try at the total of the only cell.
pub(crate) type Reading = fn(&Region) -> Option<[u64; 1]>;

pub(crate) struct Region {
    pub(crate) slot: Slot,
    held: AtomicU64,
}

impl Region {
    fn new(slot: Slot, held: bool) -> Arc<Self> {
        Arc::new(Self { slot, held: AtomicU64::new(u64::from(held)) })
    }

    pub(crate) fn hold(&self, held: bool) {
        self.held.swap(u64::from(held), Ordering::AcqRel);
    }

    pub(crate) fn is_free(&self) -> bool {
        self.held.fetch_add(0, Ordering::AcqRel) == 0
    }

    pub(crate) fn totals<P: Protocol, const N: usize>(&self) -> Option<[u64; N]> {
        self.slot.totals::<P, N>(|| self.is_free())
    }
}

fn kill_in_drain<P: Protocol, const N: usize>(slot: &Slot, step: &'static str) -> bool {
    killed_at(step, |hook| P::drain(slot, &mut [0; N], &mut [], hook))
}

/// A primary is killed at `step` while a writer adds and a reader takes the totals twice.
fn killed<P: Protocol>(step: &'static str) {
    killed_and_read::<P>(step, Region::totals::<P, 1>);
}

pub(crate) fn killed_and_read<P: Protocol>(step: &'static str, reading: Reading) {
    let region = Region::new(Slot::drained_before::<P>(), true);

    let it = region.clone();
    let writer = thread::spawn(move || P::add(&it.slot.pending[0], 1));
    let it = region.clone();
    let primary = thread::spawn(move || {
        assert!(kill_in_drain::<P, 1>(&it.slot, step), "there is no step {step}");
        it.hold(false);
    });
    let it = region.clone();
    let reader = thread::spawn(move || {
        let mut last = 4;
        for _ in 0..2 {
            if let Some([total]) = reading(&it) {
                assert!(last <= total, "{STEPPED_BACK}: {last}, then {total}");
                assert!(total <= 5, "{OVERCOUNTED}: {total}");
                last = total;
            }
        }
    });

    writer.join().unwrap();
    primary.join().unwrap();
    reader.join().unwrap();
}

/// A primary is killed with an intent stored, and a reader finds its lease free. A counter
/// declared first has something to drain, so that the drain may start before the first query.
pub(crate) fn killed_between_hits_and_queries<P: Protocol>() {
    let slot = Slot::new(3, 0);
    P::add(&slot.pending[0], 1);
    let region = Region::new(slot, true);

    let it = region.clone();
    let writer = thread::spawn(move || {
        P::add(&it.slot.pending[1], 1);
        P::add(&it.slot.pending[2], 1);
    });
    let it = region.clone();
    let primary = thread::spawn(move || {
        kill_in_drain::<P, 3>(&it.slot, "drain: after intent");
        it.hold(false);
    });
    let it = region.clone();
    let reader = thread::spawn(move || {
        if let Some([_, queries, hits]) = it.totals::<P, 3>() {
            assert!(hits <= queries, "{NO_CAUSE}: {hits} of {queries}");
        }
    });

    writer.join().unwrap();
    primary.join().unwrap();
    reader.join().unwrap();
}

/// A primary was killed at `step`, perhaps its successor too at `again`, and nobody holds the lease.
pub(crate) fn left_behind<P: Protocol>(
    step: &'static str,
    again: Option<&'static str>,
) -> Arc<Region> {
    let slot = Slot::drained_before::<P>();
    assert!(kill_in_drain::<P, 1>(&slot, step), "there is no step {step}");
    if let Some(again) = again {
        let killed = killed_at(again, |hook| {
            P::take_over(&slot, hook);
        });
        assert!(killed, "there is no step {again}");
    }
    let region = Region::new(slot, false);
    let seen = region.totals::<P, 1>();
    assert!(seen == Some([4]), "{STEPPED_BACK}: 4, then {seen:?}");
    region
}

/// The next primary takes over, and `then` does what it likes, while a writer adds 2 and a reader
/// reads as often as `readings` says.
fn next_primary<P: Protocol>(region: Arc<Region>, then: fn(&Slot), readings: &'static [Reading]) {
    let it = region.clone();
    let writer = thread::spawn(move || P::add(&it.slot.pending[0], 2));
    let it = region.clone();
    let primary = thread::spawn(move || {
        it.hold(true);
        P::take_over(&it.slot, on);
        then(&it.slot);
    });
    let it = region.clone();
    let reader = thread::spawn(move || {
        let mut last = 4;
        for reading in readings {
            if let Some([total]) = reading(&it) {
                assert!(last <= total, "{STEPPED_BACK}: {last}, then {total}");
                assert!(total <= 6, "{OVERCOUNTED}: {total}");
                last = total;
            }
        }
        last
    });

    writer.join().unwrap();
    primary.join().unwrap();
    let last = reader.join().unwrap();
    let total = region.slot.settled::<P>();
    assert!(last <= total, "{STEPPED_BACK}: {last}, then {total} at the end");
    assert!(total <= 6, "{OVERCOUNTED}: {total} at the end");
}

fn takes_over<P: Protocol>(step: &'static str, again: Option<&'static str>) {
    next_primary::<P>(left_behind::<P>(step, again), |_| {}, &[Region::totals::<P, 1>]);
}

pub(crate) fn drains_too<P: Protocol>(slot: &Slot) {
    slot.drain::<P, 1>();
}

/// A primary was killed at `step`, and the next has taken over before the model starts.
fn drain_after_takeover<P: Protocol>(step: &'static str) {
    let slot = Slot::drained_before::<P>();
    assert!(kill_in_drain::<P, 1>(&slot, step), "there is no step {step}");
    assert!(P::take_over(&slot, on), "an interrupted drain goes unnoticed");
    drain_and_totals_of::<P>(slot);
}

fn killed_after_sequence<P: Protocol>() {
    killed::<P>("drain: after sequence");
}
pub(crate) fn killed_after_intent<P: Protocol>() {
    killed::<P>("drain: after intent");
}
pub(crate) fn killed_after_swap<P: Protocol>() {
    killed::<P>("drain: after swap");
}
pub(crate) fn killed_after_ledger<P: Protocol>() {
    killed::<P>("drain: after ledger");
}
fn next_after_sequence<P: Protocol>() {
    takes_over::<P>("drain: after sequence", None);
}
pub(crate) fn next_after_intent<P: Protocol>() {
    takes_over::<P>("drain: after intent", None);
}
fn next_after_intent_read_twice<P: Protocol>() {
    let region = left_behind::<P>("drain: after intent", None);
    let twice: &[Reading] = &[Region::totals::<P, 1>, Region::totals::<P, 1>];
    next_primary::<P>(region, |_| {}, twice);
}
pub(crate) fn next_after_swap<P: Protocol>() {
    takes_over::<P>("drain: after swap", None);
}
pub(crate) fn next_after_ledger<P: Protocol>() {
    takes_over::<P>("drain: after ledger", None);
}
fn next_but_one_after_sequence<P: Protocol>() {
    takes_over::<P>("drain: after swap", Some("takeover: after sequence"));
}
fn next_but_one_after_ledger<P: Protocol>() {
    takes_over::<P>("drain: after swap", Some("takeover: after ledger"));
}
fn next_but_one_after_intent<P: Protocol>() {
    takes_over::<P>("drain: after swap", Some("takeover: after intent"));
}
pub(crate) fn next_drains<P: Protocol>() {
    let region = left_behind::<P>("drain: after sequence", None);
    next_primary::<P>(region, drains_too::<P>, &[Region::totals::<P, 1>]);
}

fn drain_after_kill_after_intent<P: Protocol>() {
    drain_after_takeover::<P>("drain: after intent");
}

/// One test per model: it holds as shipped, with at most so many preemptions.
macro_rules! shipped_holds {
    ($bound:expr; $($test:ident: $model:ident),+ $(,)?) => {
        $(#[test]
        fn $test() {
            holds(Some($bound), $model::<Shipped>);
        })+
    };
}

shipped_holds!(
    2;
    shipped_killed_after_sequence: killed_after_sequence,
    shipped_killed_after_intent: killed_after_intent,
    shipped_killed_after_swap: killed_after_swap,
    shipped_killed_after_ledger: killed_after_ledger,
    shipped_killed_between_hits_and_queries: killed_between_hits_and_queries,
    shipped_next_after_sequence: next_after_sequence,
    shipped_next_after_intent: next_after_intent,
    shipped_next_after_swap: next_after_swap,
    shipped_next_after_ledger: next_after_ledger,
    shipped_next_but_one_after_sequence: next_but_one_after_sequence,
    shipped_next_but_one_after_ledger: next_but_one_after_ledger,
    shipped_next_but_one_after_intent: next_but_one_after_intent,
    shipped_next_drains: next_drains,
    shipped_next_after_intent_read_twice: next_after_intent_read_twice,
);

shipped_holds!(1; shipped_drain_after_kill_after_intent: drain_after_kill_after_intent);

twins_fail!(Some(1), STEPPED_BACK, drain_after_kill_after_intent: take_over_intent_left);
twins_fail!(Some(2), STEPPED_BACK, next_after_swap:
    intent_never,
    take_over_same_sequence,
    take_over_intent_relaxed,
    take_over_never_settles,
);
twins_fail!(Some(2), OVERCOUNTED, next_after_intent: take_over_always_settles);
