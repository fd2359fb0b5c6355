//! The mapped file, and references into it. With `lease.rs`, the only unsafe code of the library.
//!
//! Other processes write to this memory at any time, so no `&mut` and no `&[u8]` over it is ever
//! formed: everything is reached as `&AtomicU64`.
#![allow(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use crate::sync::AtomicU64;

/// A mapped region. The mapping lives as long as any reference to a word of it.
#[derive(Debug)]
pub(crate) struct Mapping {
    map: MmapRaw,
    words: usize,
}

impl Mapping {
    /// Maps `bytes` bytes of the file, which has at least so many.
    pub(crate) fn new(file: &File, bytes: usize, writable: bool) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.len(bytes);
        let map = if writable { options.map_raw(file) } else { options.map_raw_read_only(file) }?;
        Ok(Mapping { map, words: bytes / 8 })
    }

    /// `len` words from the word `start` on. On a read-only mapping only relaxed loads are allowed.
    #[inline]
    pub(crate) fn words(&self, start: usize, len: usize) -> &[AtomicU64] {
        let end = start.checked_add(len).expect("a span of a validated layout");
        assert!(end <= self.words, "words {start}..{end} of a mapping of {}", self.words);
        // SAFETY: the assertion keeps the offset within the mapping of `words * 8` bytes.
        let first = unsafe { self.map.as_mut_ptr().cast::<AtomicU64>().add(start) };
        // SAFETY: `first` is non-null and aligned: a mapping begins at a page, and the offset is
        // in whole words. `len` words from it lie in the mapping by the assertion, and stay mapped
        // while `self`, and so the returned borrow, lives. AtomicU64 allows every bit pattern and,
        // by interior mutability, writes by others; they write whole words atomically, or are
        // hostile, which the memory model does not cover and the hardware confines to wrong
        // numbers. Nothing forms a plain reference to these bytes. That the file is not truncated
        // under the mapping (SIGBUS) is asked of its owner in SECURITY.md.
        unsafe { std::slice::from_raw_parts(first, len) }
    }

    /// The word at `index`.
    #[inline]
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        &self.words(index, 1)[0]
    }
}

/// A run of words of a mapping that keeps the mapping alive: what handles hold.
#[derive(Clone)]
pub(crate) struct Words {
    first: *const AtomicU64,
    len: usize,
    _mapping: Arc<Mapping>,
}

// SAFETY: a `Words` is a shared reference to atomics (`Sync`) with the owner of their memory
// beside it (`Arc<Mapping>`, `Send`): the pointer says nothing that those do not.
unsafe impl Send for Words {}
// SAFETY: as above; all access through `&Words` is to `&[AtomicU64]`.
unsafe impl Sync for Words {}

impl Words {
    pub(crate) fn new(mapping: &Arc<Mapping>, start: usize, len: usize) -> Self {
        let first = mapping.words(start, len).as_ptr();
        Words { first, len, _mapping: Arc::clone(mapping) }
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `new` took pointer and length from a checked slice of `self._mapping`, which
        // never moves or shrinks its memory and lives at least as long as `self`.
        unsafe { std::slice::from_raw_parts(self.first, self.len) }
    }
}

/// One word of a mapping that keeps the mapping alive.
#[derive(Clone)]
pub(crate) struct Word {
    word: *const AtomicU64,
    _mapping: Arc<Mapping>,
}

// SAFETY: as for `Words`.
unsafe impl Send for Word {}
// SAFETY: as for `Words`.
unsafe impl Sync for Word {}

impl Word {
    pub(crate) fn new(mapping: &Arc<Mapping>, index: usize) -> Self {
        Word { word: mapping.word(index), _mapping: Arc::clone(mapping) }
    }
}

impl Deref for Word {
    type Target = AtomicU64;

    #[inline(always)]
    fn deref(&self) -> &AtomicU64 {
        // SAFETY: `new` took the pointer from a checked reference into `self._mapping`, which
        // never moves or shrinks its memory and lives at least as long as `self`.
        unsafe { &*self.word }
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words").field("len", &self.len).finish_non_exhaustive()
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Word")
    }
}
