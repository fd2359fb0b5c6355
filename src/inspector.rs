//! The read-only side: totals, gauges and who is alive, of a running, hung or dead group of
//! servers. Takes nothing from the primary and writes nothing.

mod totals;
mod watch;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::layout::{PrimaryBlock, RegionBlock};
use crate::lease::{self, Seat};
use crate::owner::{self, Owner, age};
use crate::protocol::ledger;
use crate::reading::{Probe, observe};
use crate::region::file::{self, Purpose};
use crate::region::mapping::Mapping;
use crate::region::{Region, View, boot_word};
use crate::schema::{RecordId, Schema};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::table::{CounterTable, GaugeTable, SlotState};
use crate::value::Value;

pub use self::totals::Totals;
pub use self::watch::Watch;

/// How often a slot is read again while the primary is in the middle of draining it.
const READ_TRIES: u32 = 100;
/// From this try on, the processor is offered to the primary in between.
const YIELD_FROM: u32 = 4;

/// An onlooker at a region.
#[derive(Debug)]
pub struct Inspector {
    path: PathBuf,
    file: File,
    view: View,
    probe: Probe,
    totals: Totals,
    next: CounterTable,
    sequences: Vec<u64>,
}

impl Region {
    /// An onlooker at this region.
    ///
    /// # Errors
    /// [`Error::Io`] where the system refuses another descriptor.
    pub fn inspector(&self) -> Result<Inspector> {
        let file = self.file().try_clone().map_err(|e| Error::io("keep open", self.path(), e))?;
        Ok(Inspector::new(self.path(), file, self.view().clone()))
    }
}

impl Inspector {
    /// Opens a region to look at it. Needs permission to read and nothing else.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::PermissionDenied`] where the file cannot be read;
    /// [`Error::NotARegularFile`], [`Error::InvalidRegion`], [`Error::UnsupportedVersion`] and
    /// [`Error::UnsupportedFileSystem`] where it cannot be a region.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = file::open_file(path, Purpose::Read)?;
        let (header, layout) = file::read_layout(path, &file)?;
        file::refuse_holes(path, &file)?;
        let mapping =
            Mapping::new(&file, layout.file_size, false).map_err(|e| Error::io("map", path, e))?;
        let view = View { mapping: Arc::new(mapping), header, layout: Arc::new(layout) };
        Ok(Inspector::new(path, file, view))
    }

    fn new(path: &Path, file: File, view: View) -> Self {
        let layout = Arc::clone(&view.layout);
        Inspector {
            path: path.into(),
            file,
            probe: Probe::new(&view),
            totals: Totals::new(&layout),
            next: CounterTable::new(&layout),
            sequences: vec![0; layout.slot_count as usize],
            view,
        }
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is measured.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.view.layout.schema
    }

    /// What the file's head says, which never changes.
    #[must_use]
    pub fn region(&self) -> RegionInfo {
        let header = &self.view.header;
        RegionInfo {
            format_version: header.version,
            file_size: header.file_size,
            server_count: self.view.server_count(),
            slot_count: header.slot_count,
            slot_size: header.slot_stride,
            created_at: Duration::from_nanos(header.created_at),
            schema_hash: header.schema_hash,
        }
    }

    /// Whether the file still has its name and the path still leads to it.
    #[must_use]
    pub fn is_at_its_path(&self) -> bool {
        file::is_at(&self.file, &self.path)
    }

    /// What was counted in all since the region was created, per slot and record. From one reading
    /// to the next, by whichever inspector, a settled total never goes down.
    ///
    /// No system call unless a drain is under way; no allocation.
    pub fn totals(&mut self) -> &Totals {
        let slots = self.view.layout.slot_count as usize;
        self.totals.settled.fill(false);
        let mut primary_is_gone = false;
        let mut left = slots;
        for attempt in 0..READ_TRIES {
            self.collect(primary_is_gone);
            left -= self.settle();
            if left == 0 {
                break;
            }
            if attempt >= YIELD_FROM {
                std::thread::yield_now();
            }
            // Asked before the next reading and not after it: a primary that dies in between
            // might have written an intent that this reading has not seen.
            primary_is_gone = matches!(lease::is_held(&self.file, Seat::Primary), Ok(false));
        }
        for slot in (0..slots).filter(|slot| !self.totals.settled[*slot]) {
            if self.totals.ever_settled[slot] {
                self.next.copy_row(&self.totals.counts, slot);
            }
        }
        std::mem::swap(&mut self.totals.counts, &mut self.next);
        &self.totals
    }

    /// One reading of every slot that is not settled yet, into `next`.
    #[inline]
    fn collect(&mut self, primary_is_gone: bool) {
        let slots = self.view.slots();
        for slot in 0..slots.count() {
            if self.totals.settled[slot] {
                continue;
            }
            let books = slots.get(slot).books();
            let before = self.sequences[slot];
            let sequence = ledger::open(books.sequence);
            self.sequences[slot] = sequence;
            // The lease was asked for between the two sequences: if they are equal, no primary
            // has come since the one that left this odd, whose successor would have changed it.
            let gone = primary_is_gone && sequence == before;
            let (drained, single) = self.next.row_mut(slot);
            let (pending, _) = self.totals.pending.row_mut(slot);
            self.totals.sure[slot] =
                ledger::collect(books, sequence, gone, drained, pending, single);
        }
        ledger::close();
    }

    /// Marks the slots whose reading holds; returns how many.
    #[inline]
    fn settle(&mut self) -> usize {
        let mut settled = 0;
        let slots = self.view.slots();
        for slot in 0..slots.count() {
            if !self.totals.settled[slot]
                && self.totals.sure[slot]
                && ledger::unchanged(slots.get(slot).sequence(), self.sequences[slot])
            {
                self.totals.settled[slot] = true;
                self.totals.ever_settled[slot] = true;
                settled += 1;
            }
        }
        settled
    }

    /// The last [`totals`](Self::totals), without reading again.
    #[must_use]
    pub fn last_totals(&self) -> &Totals {
        &self.totals
    }

    /// Gauges, owners and the region's own health, as of now.
    ///
    /// # Errors
    /// [`Error::Io`] where the kernel will not tell who is alive.
    pub fn observe(&mut self) -> Result<Observation> {
        let mut gauges = GaugeTable::new(&self.view.layout);
        let this_boot =
            self.view.region_block()[RegionBlock::BOOT_ID].load(Ordering::Relaxed) == boot_word();
        // Acquire: pairs with the store in `adopt_boot`: who sees the new boot here sees the new
        // reset number below, and no gauge of the boot before it.
        fence(Ordering::Acquire);
        observe(&self.view, &self.file, &mut self.probe, &mut gauges)?;
        let block = self.view.region_block();
        let get = |word: usize| block[word].load(Ordering::Relaxed);
        if !this_boot {
            // Nobody has written since the machine started: its gauges are of no time we know.
            gauges.forget_all();
        }
        // No age is known of what was written under another boot.
        let now = this_boot.then_some(gauges.now);
        let owners = (0..self.sequences.len())
            .map(|slot| owner::read(&self.view, slot, now, &gauges))
            .collect();
        Ok(Observation {
            states: self.probe.states.clone(),
            owners,
            primary: self.primary(now)?,
            attached: lease::is_attached(&self.file)
                .map_err(|e| Error::io("ask for the leases of", &self.path, e))?,
            this_boot,
            reset_number: get(RegionBlock::RESET_NUMBER),
            reset_age: age(now, get(RegionBlock::RESET_AT))
                .filter(|_| get(RegionBlock::RESET_NUMBER) > 0),
            refused_servers: get(RegionBlock::REFUSED_SERVERS),
            interrupted_drains: get(RegionBlock::INTERRUPTED_DRAINS),
            skipped_writes: get(RegionBlock::SKIPPED_WRITES),
            gauges,
        })
    }

    fn primary(&self, now: Option<u64>) -> Result<PrimaryInfo> {
        let words: &[AtomicU64] = self.view.primary_block();
        let get = |word: usize| words[word].load(Ordering::Relaxed);
        Ok(PrimaryInfo {
            alive: lease::is_held(&self.file, Seat::Primary)
                .map_err(|e| Error::io("ask for the leases of", &self.path, e))?,
            takeovers: get(PrimaryBlock::GENERATION),
            pid: get(PrimaryBlock::PID),
            start_time: get(PrimaryBlock::START_TIME),
            drains: get(PrimaryBlock::DRAINS),
            drained: age(now, get(PrimaryBlock::DRAINED_AT)),
            behind: get(PrimaryBlock::BEHIND),
        })
    }
}

/// What a region's head says.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RegionInfo {
    /// The format's version.
    pub format_version: u32,
    /// Bytes of the file.
    pub file_size: u64,
    /// How many servers were configured.
    pub server_count: u32,
    /// How many slots there are.
    pub slot_count: u32,
    /// Bytes from one slot to the next.
    pub slot_size: u64,
    /// When it was created, since the Unix epoch.
    pub created_at: Duration,
    /// CRC-32 of the records, for telling schemas apart at a glance.
    pub schema_hash: u32,
}

/// Who is, or was last, primary, by its own account.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PrimaryInfo {
    /// Whether somebody holds the primary lease.
    pub alive: bool,
    /// How often it was taken.
    pub takeovers: u64,
    /// Process id of the last holder.
    pub pid: u64,
    /// Its start time in clock ticks since boot.
    pub start_time: u64,
    /// How often counters were drained.
    pub drains: u64,
    /// How long ago they last were.
    pub drained: Option<Duration>,
    /// How often a single-writer counter was found below its watermark.
    pub behind: u64,
}

/// A region's gauges, owners and health at one time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Observation {
    /// How each slot stands.
    pub states: Vec<SlotState>,
    /// Who claimed each slot last.
    pub owners: Vec<Owner>,
    /// The primary.
    pub primary: PrimaryInfo,
    /// Whether any process is attached.
    pub attached: bool,
    /// Whether its times are of this boot.
    pub this_boot: bool,
    /// Raised by each reset, and by each boot the region is used in.
    pub reset_number: u64,
    /// How long ago the last reset was.
    pub reset_age: Option<Duration>,
    /// Servers that found no free slot.
    pub refused_servers: u64,
    /// Drains that a primary died in.
    pub interrupted_drains: u64,
    /// Writes that were not done: by forked children, or of NaN.
    pub skipped_writes: u64,
    gauges: GaugeTable,
}

impl Observation {
    /// A gauge over all label sets and servers, rolled up as its record says; nothing if none has
    /// a value, or for an unknown name.
    #[must_use]
    pub fn gauge(&self, name: &str) -> Option<f64> {
        self.gauges.rolled_up(name, &self.states)
    }

    /// A gauge of one record, rolled up over all servers; for a shared thing its newest value.
    #[must_use]
    pub fn gauge_of(&self, id: RecordId) -> Option<f64> {
        self.gauges.rolled_up_of(id, &self.states)
    }

    /// A gauge as one slot's server has it; nothing where it is absent, superseded, or gone with
    /// its owner.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn gauge_in(&self, slot: usize, id: RecordId) -> Option<Value> {
        self.gauges.get(slot, id, &self.states)
    }

    /// Of a shared snapshot: the slot of its newest publication, and how old that is.
    #[must_use]
    pub fn newest(&self, snapshot: usize) -> Option<(usize, Duration)> {
        let slot = self.gauges.newest(snapshot)?;
        let stamp = self.gauges.stamp(slot, snapshot)?;
        Some((slot, Duration::from_nanos(self.gauges.now.saturating_sub(stamp.time))))
    }
}
