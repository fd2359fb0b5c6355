//! The protocol functions as a trait, so that a model is written once for the shipped module and
//! all its twins.

use crate::slot::Slot;
use crate::sync::AtomicU64;

/// One compilation of `src/protocol`.
pub(crate) trait Protocol: 'static {
    fn add(cell: &AtomicU64, n: u64);
    fn add_single_writer(cell: &AtomicU64, n: u64);

    fn drain(slot: &Slot, drained: &mut [u64], single: &mut [u64], hook: impl Fn(&'static str));
    fn take_over(slot: &Slot, hook: impl Fn(&'static str)) -> bool;
    fn open(slot: &Slot) -> u64;
    fn collect(slot: &Slot, sequence: u64, gone: bool, out: &mut [u64], single: &mut [u64])
    -> bool;
    fn close();
    fn unchanged(slot: &Slot, sequence: u64) -> bool;

    fn publish(words: &[AtomicU64], reset: u64, values: &[u64], hook: impl Fn(&'static str));
    fn clear_snapshot(words: &[AtomicU64]);
    /// One try: the sequence and the present bits. All its tries would be too many to explore.
    fn read_snapshot(words: &[AtomicU64], values: &mut [u64]) -> Option<(u64, u64)>;

    fn set(value: &AtomicU64, mark: &AtomicU64, reset: &AtomicU64, bits: u64);
    fn clear_gauge(value: &AtomicU64, mark: &AtomicU64);
    fn read_gauge(value: &AtomicU64, mark: &AtomicU64, reset_number: u64) -> Option<u64>;

    fn begin(generation: &AtomicU64) -> u64;
    fn finish(generation: &AtomicU64, odd: u64) -> u64;
    fn look(generation: &AtomicU64) -> u64;
    fn still(generation: &AtomicU64, seen: u64) -> bool;
}

/// Implements [`Protocol`] as `It` for the module named `protocol` where this is invoked.
#[macro_export]
macro_rules! protocol_impl {
    () => {
        use $crate::slot::Slot;
        use $crate::sync::AtomicU64;

        pub(crate) enum It {}

        fn books(slot: &Slot) -> protocol::ledger::Books<'_> {
            protocol::ledger::Books {
                sequence: &slot.sequence,
                pending: &slot.pending,
                accounts: slot.accounts.as_chunks().0,
                single: &slot.single,
                watermarks: &slot.watermarks,
            }
        }

        impl $crate::interface::Protocol for It {
            fn add(cell: &AtomicU64, n: u64) {
                protocol::counter::add(cell, n);
            }
            fn add_single_writer(cell: &AtomicU64, n: u64) {
                protocol::counter::add_single_writer(cell, n);
            }
            fn drain(
                slot: &Slot,
                out: &mut [u64],
                single: &mut [u64],
                hook: impl Fn(&'static str),
            ) {
                out.fill(0);
                if !protocol::ledger::is_idle(&slot.pending) {
                    let slots = [(0, books(slot))];
                    protocol::ledger::drain(&slots, |cell, n| out[cell] = n, hook);
                }
                protocol::ledger::advance_watermarks(books(slot), single);
            }
            fn take_over(slot: &Slot, hook: impl Fn(&'static str)) -> bool {
                protocol::ledger::take_over(books(slot), hook)
            }
            fn open(slot: &Slot) -> u64 {
                protocol::ledger::open(&slot.sequence)
            }
            fn collect(
                slot: &Slot,
                seq: u64,
                gone: bool,
                out: &mut [u64],
                one: &mut [u64],
            ) -> bool {
                let pending = &mut vec![0; slot.pending.len()];
                protocol::ledger::collect(books(slot), seq, gone, out, pending, one)
            }
            fn close() {
                protocol::ledger::close();
            }
            fn unchanged(slot: &Slot, sequence: u64) -> bool {
                protocol::ledger::unchanged(&slot.sequence, sequence)
            }
            fn publish(w: &[AtomicU64], reset: u64, values: &[u64], hook: impl Fn(&'static str)) {
                let present = (1 << values.len()) - 1;
                let stamp = protocol::snapshot::Stamp { reset, present, ..Default::default() };
                protocol::snapshot::publish(w, stamp, values, hook);
            }
            fn clear_snapshot(words: &[AtomicU64]) {
                protocol::snapshot::clear(words, protocol::no_hook);
            }
            fn read_snapshot(words: &[AtomicU64], values: &mut [u64]) -> Option<(u64, u64)> {
                let stamp = protocol::snapshot::read_once(words, values)?;
                (stamp.sequence != 0).then_some((stamp.sequence, stamp.present))
            }
            fn set(value: &AtomicU64, mark: &AtomicU64, reset: &AtomicU64, bits: u64) {
                protocol::gauge::set(value, mark, reset, bits);
            }
            fn clear_gauge(value: &AtomicU64, mark: &AtomicU64) {
                protocol::gauge::clear(value, mark);
            }
            fn read_gauge(value: &AtomicU64, mark: &AtomicU64, reset_number: u64) -> Option<u64> {
                protocol::gauge::read(value, mark, reset_number)
            }
            fn begin(generation: &AtomicU64) -> u64 {
                protocol::claim::begin(generation)
            }
            fn finish(generation: &AtomicU64, odd: u64) -> u64 {
                protocol::claim::finish(generation, odd)
            }
            fn look(generation: &AtomicU64) -> u64 {
                protocol::claim::look(generation)
            }
            fn still(generation: &AtomicU64, seen: u64) -> bool {
                protocol::claim::still(generation, seen)
            }
        }
    };
}
