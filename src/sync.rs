//! The only file that names the standard library's atomics.
//!
//! `src/protocol` imports atomics from `crate::sync` and nowhere else, so that `loom-tests` can
//! compile the same files against a `sync` module of its own that re-exports loom's.

pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU64, Ordering, fence,
};
