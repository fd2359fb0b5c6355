//! How counts and values move between processes: functions over `&[AtomicU64]` and nothing else.
//!
//! No file, no mapping, no clock, no lease: those are arguments. `docs/protocol.md` states each
//! protocol with its orderings; a comment `(Pn)` beside an ordering names its pair there.
//! `loom-tests` compiles these very files against loom's atomics and checks them; it also checks
//! that weakening them breaks a model, pair by pair. That page says which few orderings are spare.
//!
//! Every step that a process can be killed before takes a hook. Production passes [`no_hook`],
//! which compiles to nothing; tests pass one that aborts, to put a real process's death there.

pub(crate) mod claim;
pub(crate) mod counter;
pub(crate) mod gauge;
pub(crate) mod ledger;
pub(crate) mod snapshot;

/// The hook of production code: nothing happens between two steps.
#[inline(always)]
pub(crate) fn no_hook(_step: &'static str) {}
