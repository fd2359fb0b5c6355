//! A slot that changes hands: no value of one owner is given out as another's.

use std::sync::Arc;

use loom::thread;

use crate::check::{holds, on, twins_fail};
use crate::gauge::Gauge;
use crate::interface::Protocol;
use crate::protocol::snapshot::HEAD_WORDS;
use crate::shipped::It as Shipped;
use crate::slot::zeros;
use crate::sync::{AtomicU64, Ordering};

const OTHERS: &str = "one owner's value given out as another's";

/// The old owner's generation, and the new one's.
const OLD: u64 = 2;
const NEW: u64 = 4;

struct Owned {
    generation: AtomicU64,
    pid: AtomicU64,
    gauge: Gauge,
    snapshot: Vec<AtomicU64>,
}

impl Owned {
    /// Claimed by pid 1, which set its gauge and published a snapshot, 1 each. `generation` is
    /// odd if somebody died in a claim since.
    fn new<P: Protocol>(generation: u64) -> Arc<Self> {
        let owned = Self {
            generation: AtomicU64::new(generation),
            pid: AtomicU64::new(1),
            gauge: Gauge::new(),
            snapshot: zeros(HEAD_WORDS + 1),
        };
        owned.gauge.set::<P>(1);
        P::publish(&owned.snapshot, 0, &[1], on);
        Arc::new(owned)
    }

    fn claim<P: Protocol>(&self, clear: impl FnOnce()) {
        let odd = P::begin(&self.generation);
        clear();
        self.pid.store(2, Ordering::Relaxed);
        P::finish(&self.generation, odd);
    }

    /// What `read` finds, if it is one owner's: 0 is absent, else the owner it comes from.
    fn check<P: Protocol>(&self, read: impl FnOnce() -> u64) {
        let generation = P::look(&self.generation);
        let pid = self.pid.load(Ordering::Relaxed);
        let from = read();
        if P::still(&self.generation, generation) {
            let owner = if generation == OLD { 1 } else { 2 };
            assert!(generation == OLD || generation == NEW, "generation {generation}");
            assert!(pid == owner, "{OTHERS}: pid {pid}, generation {generation}");
            assert!(
                from == owner || (from == 0 && owner == 2),
                "{OTHERS}: value of {from}, generation {generation}"
            );
        }
    }
}

fn read_gauge<P: Protocol>(owned: &Owned) -> u64 {
    // A cleared word that is given out is nobody's.
    owned.gauge.read::<P>(0).map_or(0, |bits| if bits == 0 { 9 } else { bits })
}

fn read_snapshot<P: Protocol>(owned: &Owned) -> u64 {
    let mut value = [0];
    match P::read_snapshot(&owned.snapshot, &mut value) {
        Some((_, 1)) => value[0],
        _ => 0,
    }
}

/// The new owner claims the slot and sets its gauge, while a reader reads it.
fn claim_of<P: Protocol>(generation: u64) {
    let owned = Owned::new::<P>(generation);
    let it = owned.clone();
    let owner = thread::spawn(move || {
        it.claim::<P>(|| P::clear_gauge(&it.gauge.value, &it.gauge.mark));
        it.gauge.set::<P>(2);
    });
    let it = owned;
    let reader = thread::spawn(move || it.check::<P>(|| read_gauge::<P>(&it)));
    owner.join().unwrap();
    reader.join().unwrap();
}

pub(crate) fn claim_gauge<P: Protocol>() {
    claim_of::<P>(OLD);
}

fn claim_after_death<P: Protocol>() {
    claim_of::<P>(OLD + 1);
}

/// The new owner sets its gauge in another thread than the one that claimed and set it before.
pub(crate) fn claim_two_threads<P: Protocol>() {
    let owned = Owned::new::<P>(OLD);
    let it = owned.clone();
    let owner = thread::spawn(move || {
        it.claim::<P>(|| P::clear_gauge(&it.gauge.value, &it.gauge.mark));
        it.gauge.set::<P>(2);
        let it = it.clone();
        thread::spawn(move || it.gauge.set::<P>(2)).join().unwrap();
    });
    let it = owned;
    let reader = thread::spawn(move || it.check::<P>(|| read_gauge::<P>(&it)));
    owner.join().unwrap();
    reader.join().unwrap();
}

/// The same with a snapshot.
fn claim_snapshot<P: Protocol>() {
    let owned = Owned::new::<P>(OLD);
    let it = owned.clone();
    let owner = thread::spawn(move || {
        it.claim::<P>(|| P::clear_snapshot(&it.snapshot));
        P::publish(&it.snapshot, 0, &[2], on);
    });
    let it = owned;
    let reader = thread::spawn(move || it.check::<P>(|| read_snapshot::<P>(&it)));
    owner.join().unwrap();
    reader.join().unwrap();
}

#[test]
fn shipped_gauge_holds() {
    holds(Some(3), claim_gauge::<Shipped>);
}

#[test]
fn shipped_gauge_after_death_holds() {
    holds(Some(3), claim_after_death::<Shipped>);
}

#[test]
fn shipped_gauge_two_threads_holds() {
    holds(Some(3), claim_two_threads::<Shipped>);
}

#[test]
fn shipped_snapshot_holds() {
    holds(Some(2), claim_snapshot::<Shipped>);
}

twins_fail!(Some(3), OTHERS, claim_gauge:
    begin_without_fence,
    finish_relaxed,
    look_not_acquire,
    still_not_acquire,
);

twins_fail!(Some(3), OTHERS, claim_after_death: begin_plus_one);

twins_fail!(Some(3), OTHERS, claim_two_threads: set_relaxed);
