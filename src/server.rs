//! The writer's side: claim a slot, get handles, count.

mod counter;
mod gauge;
mod snapshot;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use self::counter::{Counter, SingleWriterCounter};
pub use self::gauge::{Gauge, InFlight};
pub use self::snapshot::{Field, Snapshot};
use crate::clock;
use crate::env;
use crate::error::{Error, Result};
use crate::layout::{OwnerBlock, Place, RegionBlock};
use crate::lease::{Lease, PATIENCE, Seat};
use crate::protocol::{claim, gauge as gauges, no_hook, snapshot as snapshots};
use crate::region::{Region, refused};
use crate::schema::{Kind, Lifetime, RecordId, Schema, Scope, labels_text};
use crate::sync::{AtomicBool, Ordering};

/// `OwnerBlock::STATE`: somebody claimed the slot.
pub(crate) const STATE_CLAIMED: u64 = 1;
/// `OwnerBlock::STATE`: its owner gave it back.
pub(crate) const STATE_RELEASED: u64 = 2;
/// `OwnerBlock::SERVER_INDEX` of a server that has none.
pub(crate) const NO_INDEX: u64 = u64::MAX;

/// A process that owns a slot. Cheap to clone; the slot is given back when the last clone and the
/// last handle are gone.
#[derive(Clone, Debug)]
pub struct Server(pub(crate) Arc<Slot>);

/// A claimed slot: what every handle keeps alive, so that no handle of the process that claimed it
/// can write into the slot of a next owner.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) index: u32,
    server_index: Option<u32>,
    pub(crate) region: Region,
    /// For a private server: where it would rather count.
    wanted: Option<Wanted>,
    /// One flag per record: whether its only writer's handle is out.
    taken: Box<[AtomicBool]>,
    /// Declared last: the slot is marked as released before the lease goes.
    pub(crate) lease: Lease,
}

/// The slot that a launcher meant for a server.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    path: PathBuf,
    index: Option<u32>,
}

impl Wanted {
    fn from_env() -> Result<Self> {
        let missing =
            |variable, expected| Error::Environment { variable, expected, found: "nothing".into() };
        let path = std::env::var_os(env::REGION)
            .filter(|path| !path.is_empty())
            .ok_or(missing(env::REGION, "the path of a region"))?;
        let index = std::env::var(env::SERVER_INDEX).ok().map(|text| {
            let expected = "the index of a server";
            let parsed = text.parse();
            parsed.map_err(|_| Error::Environment {
                variable: env::SERVER_INDEX,
                expected,
                found: format!("{text:?}"),
            })
        });
        Ok(Wanted { path: path.into(), index: index.transpose()? })
    }

    /// As [`claim`](Self::claim), for one who has been refused before: waits for nobody, and is not
    /// counted as refused again.
    pub(crate) fn claim_again(&self, schema: &Schema) -> Result<Server> {
        let region = self.open(schema)?;
        let own = self.index.filter(|index| *index < region.slot_count());
        let own = own.map(|index| region.claim_slot(index, self.index, Duration::ZERO, no_hook));
        match own {
            Some(Err(Error::Held { .. })) | None => region.claim_free(self.index),
            Some(claimed) => claimed,
        }
    }

    /// Opens the region and claims a slot, if it measures what is expected.
    fn claim(&self, schema: &Schema) -> Result<Server> {
        let region = self.open(schema)?;
        match self.index {
            Some(index) => region.claim_preferring(index),
            None => region.claim_any(),
        }
    }

    fn open(&self, schema: &Schema) -> Result<Region> {
        let region = Region::open(&self.path)?;
        match schema.difference(region.schema()) {
            Some(difference) => Err(Error::SchemaMismatch { path: self.path.clone(), difference }),
            None => Ok(region),
        }
    }
}

impl Region {
    /// Claims the slot of this index, which is also the server's index. Waits up to half a second
    /// for an owner that has just been killed.
    ///
    /// # Errors
    /// [`Error::Held`] by another process or this one, [`Error::NoSuchSlot`],
    /// [`Error::Removed`] if the file has lost its name.
    pub fn claim(&self, index: u32) -> Result<Server> {
        self.claim_slot(index, Some(index), PATIENCE, no_hook)
    }

    /// Claims any free slot: first those beyond the configured servers' own.
    ///
    /// # Errors
    /// [`Error::NoFreeSlot`], which is also counted in the region, and [`Error::Removed`].
    pub fn claim_any(&self) -> Result<Server> {
        self.claim_free(None).inspect_err(|error| self.count_refusal(error))
    }

    /// Claims the slot of this index, or any free one if somebody holds it, as in a rolling
    /// restart: the server keeps its index either way.
    ///
    /// # Errors
    /// As [`claim_any`](Self::claim_any).
    pub fn claim_preferring(&self, index: u32) -> Result<Server> {
        let free = || self.claim_free(Some(index)).inspect_err(|error| self.count_refusal(error));
        if index >= self.slot_count() {
            return free();
        }
        match self.claim_slot(index, Some(index), PATIENCE, no_hook) {
            Err(Error::Held { .. }) => free(),
            claimed => claimed,
        }
    }

    fn claim_free(&self, server_index: Option<u32>) -> Result<Server> {
        let region = self.of_this_process()?;
        let (servers, slots) = (self.server_count().min(self.slot_count()), self.slot_count());
        for index in (servers..slots).chain(0..servers) {
            match region.claim_slot(index, server_index, Duration::ZERO, no_hook) {
                Err(Error::Held { .. }) => {}
                claimed => return claimed,
            }
        }
        Err(Error::NoFreeSlot { path: self.path().into(), slots })
    }

    fn count_refusal(&self, error: &Error) {
        if matches!(error, Error::NoFreeSlot { .. }) {
            count_in(self, RegionBlock::REFUSED_SERVERS);
        }
    }

    pub(crate) fn claim_slot(
        &self,
        index: u32,
        server_index: Option<u32>,
        patience: Duration,
        hook: impl Fn(&'static str),
    ) -> Result<Server> {
        let path = self.path();
        if index >= self.slot_count() {
            return Err(Error::NoSuchSlot { path: path.into(), index, slots: self.slot_count() });
        }
        let region = self.of_this_process()?;
        let what = format!("slot {index}");
        hook("claim: before lease");
        let lease = region
            .lease()
            .take(region.file(), Seat::Slot(index), patience)
            .map_err(|refusal| self.refused_slot(refused(refusal, path, &what), index))?;
        // Both leases are held: nobody can remove the file from here on.
        if !region.is_private() && lease.links().map_err(|e| refused(e, path, &what))? == 0 {
            return Err(Error::Removed { path: path.into() });
        }
        let records = region.schema().records().len();
        let taken = (0..records).map(|_| AtomicBool::new(false)).collect();
        let slot = Slot { index, server_index, region, wanted: None, taken, lease };
        slot.take_possession(hook);
        Ok(Server(Arc::new(slot)))
    }

    /// Adds the pid that the owner wrote, for people.
    fn refused_slot(&self, mut error: Error, index: u32) -> Error {
        if let Error::Held { pid, .. } = &mut error {
            let owner = self.view().slot(index as usize).owner();
            // 0: it has not got so far, or is a reader whose lock is in the way.
            *pid = Some(owner[OwnerBlock::PID].load(Ordering::Relaxed)).filter(|pid| *pid != 0);
        }
        error
    }
}

impl Slot {
    fn place(&self) -> usize {
        self.index as usize
    }

    /// The fork number of the process that claimed it.
    fn fork(&self) -> u64 {
        self.lease.fork()
    }

    /// The claim protocol: see `protocol::claim`.
    pub(crate) fn take_possession(&self, hook: impl Fn(&'static str)) {
        let view = self.region.view();
        let owner = view.slot(self.place()).owner();
        hook("claim: before generation");
        let odd = claim::begin(&owner[OwnerBlock::GENERATION]);
        hook("claim: after generation");
        self.clear_gauges(&hook);
        let (pid, start_time) = clock::myself();
        let now = clock::monotonic_ns();
        let index = self.server_index.map_or(NO_INDEX, u64::from);
        for (word, value) in [
            (OwnerBlock::PID, pid),
            (OwnerBlock::START_TIME, start_time),
            (OwnerBlock::CLAIMED_AT, now),
            (OwnerBlock::HEARTBEAT_AT, now),
            (OwnerBlock::STATE, STATE_CLAIMED),
            (OwnerBlock::SERVER_INDEX, index),
        ] {
            // Relaxed: `finish` publishes them (P11).
            owner[word].store(value, Ordering::Relaxed);
        }
        hook("claim: after owner");
        claim::finish(&owner[OwnerBlock::GENERATION], odd);
    }

    /// What described the last owner goes with it; counts, accounts and what describes others stay.
    fn clear_gauges(&self, hook: &impl Fn(&'static str)) {
        let view = self.region.view();
        let schema = self.region.schema();
        for (record, place) in schema.records().iter().zip(&view.layout.places) {
            if let (Place::Gauge(n), Lifetime::Owner) = (*place, record.lifetime) {
                let (value, mark) = view.slot(self.place()).gauge(n);
                gauges::clear(value, mark);
                hook("claim: after gauge");
            }
        }
        for (n, shape) in schema.snapshots().iter().enumerate() {
            if (shape.scope, shape.lifetime) == (Scope::Server, Lifetime::Owner) {
                snapshots::clear(view.slot(self.place()).snapshot(n), hook);
                hook("claim: after snapshot");
            }
        }
    }

    /// Takes the only writer's place of a record.
    fn take_writer(&self, id: RecordId) -> Result<()> {
        if self.taken[id.index()].swap(true, Ordering::Acquire) {
            let record = &self.region.schema()[id];
            return Err(Error::Held {
                what: format!(
                    "the only writer's handle of {}{}",
                    record.name,
                    record.labels_text()
                ),
                path: self.region.path().into(),
                by_this_process: true,
                pid: None,
            });
        }
        Ok(())
    }

    fn return_writer(&self, id: RecordId) {
        self.taken[id.index()].store(false, Ordering::Release);
    }

    /// A write that was not done is counted, since a handle cannot fail.
    #[cold]
    #[inline(never)]
    fn skip_write(&self) {
        count_in(&self.region, RegionBlock::SKIPPED_WRITES);
    }
}

fn count_in(region: &Region, word: usize) {
    // Relaxed: a count of rare events, read for people.
    region.view().region_block()[word].fetch_add(1, Ordering::Relaxed);
}

impl Drop for Slot {
    fn drop(&mut self) {
        // A forked child drops its copy of the parent's claim: the parent still owns the slot.
        if self.lease.is_mine() {
            let owner = self.region.view().slot(self.place()).owner();
            // Release: what this server wrote comes before.
            owner[OwnerBlock::STATE].store(STATE_RELEASED, Ordering::Release);
        }
    }
}

impl Server {
    /// The server that its launcher meant this process to be: opens `SHMSTATS_REGION` and claims
    /// slot `SHMSTATS_SERVER_INDEX`, or any free one.
    ///
    /// Never fails: with no such variables, no such region, another schema or no free slot it
    /// warns once and counts privately, so that serving always starts. Where the variables are set,
    /// its [`StatLogger`](crate::StatLogger) tries again at each tick and carries over what was
    /// counted.
    #[must_use]
    pub fn from_env(schema: &Schema) -> Self {
        match Wanted::from_env() {
            Ok(wanted) => Server::join_wanted(wanted, schema),
            Err(error) => Server::alone(&error, None, schema),
        }
    }

    /// As [`from_env`](Self::from_env), with the region's path and the server's index given.
    #[must_use]
    pub fn join(path: impl Into<PathBuf>, index: Option<u32>, schema: &Schema) -> Self {
        Server::join_wanted(Wanted { path: path.into(), index }, schema)
    }

    fn join_wanted(wanted: Wanted, schema: &Schema) -> Self {
        wanted.claim(schema).unwrap_or_else(|error| Server::alone(&error, Some(wanted), schema))
    }

    fn alone(error: &Error, wanted: Option<Wanted>, schema: &Schema) -> Self {
        tracing::warn!(%error, "no shared stats: this process counts for itself");
        Server::private_wanting(schema, wanted)
    }

    /// As [`from_env`](Self::from_env), without the fall-back.
    ///
    /// # Errors
    /// [`Error::Environment`] for a variable that is missing or malformed;
    /// [`Error::SchemaMismatch`]; those of [`Region::open`] and [`Region::claim_any`].
    pub fn try_from_env(schema: &Schema) -> Result<Self> {
        Wanted::from_env()?.claim(schema)
    }

    /// A server that counts for itself: same handles, nobody else sees it.
    ///
    /// # Panics
    /// When the system has no memory for it.
    #[must_use]
    pub fn private(schema: &Schema) -> Self {
        Server::private_wanting(schema, None)
    }

    fn private_wanting(schema: &Schema, wanted: Option<Wanted>) -> Self {
        let region = Region::options(1).slots(1).private(schema);
        let mut server = region.claim(0).expect("nobody else can hold a slot of a private region");
        if let Some(slot) = Arc::get_mut(&mut server.0) {
            // Its index among the servers is what it was meant to be, wherever it counts.
            slot.server_index = wanted.as_ref().and_then(|wanted| wanted.index);
            slot.wanted = wanted;
        }
        server
    }

    /// For a private server: the slot it could not have when it started.
    pub(crate) fn wanted(&self) -> Option<&Wanted> {
        self.0.wanted.as_ref()
    }

    /// The region this server counts in.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.0.region
    }

    /// The index of its slot.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.0.index
    }

    /// Its index among the configured servers, if it has one.
    #[must_use]
    pub fn index(&self) -> Option<u32> {
        self.0.server_index
    }

    /// Whether this process claimed the slot, and is not a child that was forked since.
    #[must_use]
    pub fn is_mine(&self) -> bool {
        self.0.lease.is_mine()
    }

    /// Counts a write that was not done.
    pub(crate) fn skip_write(&self) {
        self.0.skip_write();
    }

    /// Notes that the server is alive, for onlookers; the logger's tick does this too. Nothing is
    /// ever taken away from a server that is silent.
    pub fn heartbeat(&self) {
        if self.is_mine() {
            let owner = self.region().view().slot(self.0.place()).owner();
            // Relaxed: a time for people.
            owner[OwnerBlock::HEARTBEAT_AT].store(clock::monotonic_ns(), Ordering::Relaxed);
        }
    }

    /// Finds a record, or says what there is instead.
    fn find(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        expected: &'static str,
        fits: impl Fn(Kind, bool) -> bool,
    ) -> Result<RecordId> {
        let schema = self.region().schema();
        let fails = |hint: String| Error::NoSuchRecord {
            expected,
            name: name.into(),
            labels: labels_text(labels),
            hint,
        };
        let Some(id) = schema.find(name, labels) else {
            let sets: Vec<String> = schema.named(name).map(|id| schema[id].labels_text()).collect();
            let names = || schema.records().iter().map(|r| r.name.as_str());
            return Err(fails(match sets.as_slice() {
                [] => format!("the schema has {}", few(names())),
                [only] if only.is_empty() => "it has no labels".into(),
                sets => format!("its label sets are {}", few(sets.iter().map(String::as_str))),
            }));
        };
        let record = &schema[id];
        if !fits(record.kind, record.snapshot.is_some()) {
            let place = if record.snapshot.is_some() { " of a snapshot" } else { "" };
            return Err(fails(format!("it is a {}{place}", record.kind)));
        }
        Ok(id)
    }
}

/// At most a dozen of the names, each once.
fn few<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut shown: Vec<&str> = Vec::new();
    for name in names {
        if shown.len() == 12 {
            shown.push("…");
            break;
        }
        if !shown.contains(&name) {
            shown.push(name);
        }
    }
    shown.join(", ")
}
