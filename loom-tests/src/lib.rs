//! Model checks of the protocols of `shmstats`.
//!
//! The very files of `src/protocol` are compiled here against loom's atomics, and so are their
//! *twins*: the same files with one ordering, fence or step weakened (`twins.rs`, `build.rs`).
//! A model is one generic function. On the shipped protocol it must hold; on each twin named
//! beside it, it must fail with the model's own message, which shows that the model can see the
//! fault. `docs/protocol.md` lists which test stands for which pair.
//!
//! Every model spawns each of its sides and keeps the main thread to setting up, spawning and
//! joining: with a side on the main thread loom explores too little.
#![cfg(test)]

mod check;
mod interface;
mod slot;

mod claim;
mod drain;
mod gauge;
mod lease;
mod order;
mod snapshot;
mod spare;
mod takeover;

/// What the library's own `sync` module is, with loom's atomics.
mod sync {
    use loom::sync::atomic;

    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};

    loom::lazy_static! {
        static ref TURN: AtomicU64 = AtomicU64::new(0);
    }

    /// Called before any side is spawned, so that nothing is learnt from who made it.
    pub(crate) fn set_up() {
        TURN.store(0, Ordering::Relaxed);
    }

    /// Loom does not switch threads at a fence, and does not know that the order of two SeqCst
    /// fences matters. Two stores to one word do both; as nobody loads it, they order nothing.
    pub(crate) fn fence(order: Ordering) {
        if order == Ordering::SeqCst {
            TURN.store(0, Ordering::Relaxed);
        }
        atomic::fence(order);
    }
}

#[allow(dead_code, unreachable_pub)]
#[path = "../../src/protocol/mod.rs"]
mod protocol;

/// The protocol as it ships.
mod shipped {
    use super::protocol;
    crate::protocol_impl!();
}

/// One module for each row of `twins.rs`.
#[allow(unused, unreachable_pub, clippy::all)]
mod twins {
    include!(concat!(env!("OUT_DIR"), "/twins.rs"));
}
