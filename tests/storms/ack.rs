//! What a process has done, in its own words: a mapped file of atomics that outlives it, with
//! nothing of shmstats in it.
#![allow(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// Words in one line of a cache, so that who writes one does not slow down who writes another.
const LINE: usize = 16;

/// A file as words, whatever it holds.
pub(crate) struct Raw(MmapRaw);

impl Raw {
    pub(crate) fn open(path: &Path) -> Self {
        let file = std::fs::File::options().read(true).write(true).open(path).expect("the file");
        Raw(MmapOptions::new().map_raw(&file).expect("a mapping"))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len() / 8
    }

    pub(crate) fn word(&self, i: usize) -> &AtomicU64 {
        assert!(i < self.len());
        // SAFETY: the assertion keeps the offset in the mapping.
        let at = unsafe { self.0.as_mut_ptr().add(8 * i) };
        // SAFETY: a mapping begins at a page, so the word is aligned; it lives as long as `self`,
        // and all who map the file use atomics only.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }
}

/// A few words, each on a line of its own.
pub(crate) struct Acks {
    raw: Raw,
    path: PathBuf,
}

impl Acks {
    pub(crate) fn create(path: impl Into<PathBuf>, words: usize) -> Self {
        let path = path.into();
        let file = std::fs::File::create_new(&path).expect("a file for acknowledgements");
        file.set_len((words * LINE * 8) as u64).expect("its length");
        drop(file);
        Acks::open(path)
    }

    pub(crate) fn open(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Acks { raw: Raw::open(&path), path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn word(&self, i: usize) -> &AtomicU64 {
        self.raw.word(LINE * i)
    }

    pub(crate) fn get(&self, i: usize) -> u64 {
        self.word(i).load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, i: usize, value: u64) {
        self.word(i).store(value, Ordering::Release);
    }
}
