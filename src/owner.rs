//! Who owns a slot, by its own account.

use std::time::Duration;

use crate::clock;
use crate::layout::OwnerBlock;
use crate::protocol::claim;
use crate::region::View;
use crate::server::NO_INDEX;
use crate::sync::Ordering;
use crate::table::GaugeTable;

/// How often an owner block is read again because it changed hands meanwhile.
const TRIES: usize = 16;

/// Who claimed a slot last, by its own account: for people, never to act on.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Owner {
    /// Goes up by two at each claim; odd while one is under way.
    pub generation: u64,
    /// Its process id, in its own PID namespace.
    pub pid: u64,
    /// Its start time in clock ticks since boot, as in /proc/PID/stat.
    pub start_time: u64,
    /// Its index among the configured servers.
    pub server_index: Option<u64>,
    /// How long ago it claimed the slot.
    pub claimed: Option<Duration>,
    /// How long ago it last published or ticked.
    pub heard: Option<Duration>,
}

impl Owner {
    /// Whether the process is stopped (SIGSTOP, a debugger), as far as /proc here shows it.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        clock::process_stat(self.pid)
            .is_some_and(|s| s.start_time == self.start_time && matches!(s.state, 'T' | 't'))
    }
}

/// Reads a slot's owner block. `now` is nothing in another boot than the one its times are of.
pub(crate) fn read(view: &View, slot: usize, now: Option<u64>, gauges: &GaugeTable) -> Owner {
    let words = view.slot(slot).owner();
    let get = |word: usize| words[word].load(Ordering::Relaxed);
    let read = || {
        let generation = claim::look(&words[OwnerBlock::GENERATION]);
        let index = Some(get(OwnerBlock::SERVER_INDEX)).filter(|index| *index != NO_INDEX);
        Owner {
            generation,
            pid: get(OwnerBlock::PID),
            start_time: get(OwnerBlock::START_TIME),
            server_index: index,
            claimed: age(now, get(OwnerBlock::CLAIMED_AT)),
            heard: gauges.silent_for(slot),
        }
    };
    // Not half of one owner and half of the next; one who died in a claim stays half written.
    let whole = |owner: &Owner| claim::still(&words[OwnerBlock::GENERATION], owner.generation);
    (0..TRIES).map(|_| read()).find(whole).unwrap_or_else(read)
}

/// Nothing for a time that never was or of another boot, and never negative.
pub(crate) fn age(now: Option<u64>, then: u64) -> Option<Duration> {
    now.filter(|_| then != 0).map(|now| Duration::from_nanos(now.saturating_sub(then)))
}
