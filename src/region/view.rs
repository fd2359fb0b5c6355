//! A mapping and its layout: where each word is.

use std::sync::Arc;

use super::mapping::{Mapping, Word, Words};
use crate::layout::{
    BLOCK_WORDS, Header, Layout, MAX_SLOTS, OwnerBlock, REGION_BLOCK_WORDS, RegionBlock, Span,
};
use crate::protocol::ledger::Books;
use crate::sync::{AtomicU64, Ordering};

/// A mapping and its layout: where each word is.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) header: Header,
    pub(crate) layout: Arc<Layout>,
}

impl View {
    pub(crate) fn region_block(&self) -> &[AtomicU64] {
        self.mapping.words(self.layout.region_block / 8, REGION_BLOCK_WORDS)
    }

    /// How many servers are configured now; a restart may have changed what the header says.
    pub(crate) fn server_count(&self) -> u32 {
        // Relaxed: a number for people. Zero only in a file that others scribble in.
        let count = self.region_block()[RegionBlock::SERVER_COUNT].load(Ordering::Relaxed);
        u32::try_from(count).unwrap_or(0).clamp(1, MAX_SLOTS)
    }

    pub(crate) fn primary_block(&self) -> &[AtomicU64] {
        self.mapping.words(self.layout.primary_block / 8, BLOCK_WORDS)
    }

    pub(crate) fn reset_number(&self) -> &AtomicU64 {
        &self.region_block()[RegionBlock::RESET_NUMBER]
    }

    /// All slots, for sweeps: what is checked for one slot's place is checked once for all.
    #[inline]
    pub(crate) fn slots(&self) -> Slots<'_> {
        let layout = &*self.layout;
        let len = layout.slot_count as usize * layout.stride;
        Slots { words: self.mapping.words(layout.slots_offset / 8, len), layout }
    }

    /// One slot.
    #[inline]
    pub(crate) fn slot(&self, slot: usize) -> SlotView<'_> {
        let layout = &*self.layout;
        SlotView { words: self.mapping.words(self.slot_word(slot, 0), layout.stride), layout }
    }

    /// Index in the mapping of a word of a slot.
    #[inline]
    fn slot_word(&self, slot: usize, word: usize) -> usize {
        debug_assert!(slot < self.layout.slot_count as usize);
        self.layout.slots_offset / 8 + slot * self.layout.stride + word
    }

    pub(crate) fn word_at(&self, slot: usize, byte_offset: usize) -> Word {
        Word::new(&self.mapping, self.slot_word(slot, byte_offset / 8))
    }

    pub(crate) fn snapshot_words(&self, slot: usize, n: usize) -> Words {
        let span = self.layout.snapshots[n];
        Words::new(&self.mapping, self.slot_word(slot, span.start), span.len)
    }

    pub(crate) fn reset_word(&self) -> Word {
        Word::new(&self.mapping, self.layout.region_block / 8 + RegionBlock::RESET_NUMBER)
    }
}

/// The words of all slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots<'a> {
    words: &'a [AtomicU64],
    layout: &'a Layout,
}

impl<'a> Slots<'a> {
    #[inline(always)]
    pub(crate) fn count(self) -> usize {
        self.layout.slot_count as usize
    }

    /// One slot.
    #[inline(always)]
    pub(crate) fn get(self, slot: usize) -> SlotView<'a> {
        let stride = self.layout.stride;
        SlotView { words: &self.words[slot * stride..][..stride], layout: self.layout }
    }

    /// All owner blocks, in order.
    #[inline(always)]
    pub(crate) fn owners(self) -> impl Iterator<Item = &'a [AtomicU64]> {
        self.words.chunks_exact(self.layout.stride).map(|words| &words[..BLOCK_WORDS])
    }

    /// The cells of one slot's drained counters.
    #[inline(always)]
    pub(crate) fn pending(self, slot: usize) -> &'a [AtomicU64] {
        let Span { start, len } = self.layout.drained;
        &self.words[slot * self.layout.stride + start..][..len]
    }
}

/// The words of one slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotView<'a> {
    words: &'a [AtomicU64],
    pub(crate) layout: &'a Layout,
}

impl<'a> SlotView<'a> {
    #[inline(always)]
    pub(crate) fn owner(self) -> &'a [AtomicU64] {
        &self.words[..BLOCK_WORDS]
    }

    #[inline(always)]
    pub(crate) fn generation(self) -> &'a AtomicU64 {
        &self.owner()[OwnerBlock::GENERATION]
    }

    #[inline(always)]
    fn span(self, span: Span) -> &'a [AtomicU64] {
        &self.words[span.start..][..span.len]
    }

    /// The sequence of the accounts.
    #[inline(always)]
    pub(crate) fn sequence(self) -> &'a AtomicU64 {
        &self.words[self.layout.accounts.start]
    }

    #[inline(always)]
    pub(crate) fn books(self) -> Books<'a> {
        let layout = self.layout;
        let accounts = self.span(layout.accounts);
        let (sequence, accounts) = accounts.split_first().expect("accounts begin with a sequence");
        let (accounts, watermarks) = accounts.split_at(2 * layout.drained.len);
        let (accounts, _) = accounts.as_chunks();
        Books {
            sequence,
            pending: self.span(layout.drained),
            accounts,
            single: self.span(layout.single),
            watermarks,
        }
    }

    /// A lone gauge's value word and mark.
    #[inline(always)]
    pub(crate) fn gauge(self, n: usize) -> (&'a AtomicU64, &'a AtomicU64) {
        let words = self.span(self.layout.gauges);
        (&words[2 * n], &words[2 * n + 1])
    }

    #[inline(always)]
    pub(crate) fn snapshot(self, n: usize) -> &'a [AtomicU64] {
        self.span(self.layout.snapshots[n])
    }
}
