//! The mapped file: create, open, validate, map, remove.

pub(crate) mod file;
pub(crate) mod mapping;
mod view;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::Group;

use self::file::{Access, Purpose, Trust, Unnamed};
pub use self::file::{default_dir, default_path};
use self::mapping::Mapping;
pub(crate) use self::view::{SlotView, Slots, View};
use crate::clock;
use crate::error::{Error, Result};
use crate::layout::{self, Header, Layout, MAX_SLOTS, PrimaryBlock, RegionBlock};
use crate::lease::{Lease, PATIENCE, Refusal};
use crate::protocol::no_hook;
use crate::schema::Schema;
use crate::sync::Ordering;

/// How often opening starts again because the file was removed meanwhile.
const OPEN_TRIES: usize = 1000;

/// How a region is made, and by whom it may be owned to be written to.
#[derive(Clone, Debug)]
#[must_use]
pub struct RegionOptions {
    servers: u32,
    slots: Option<u32>,
    mode: Option<u32>,
    trust: Trust,
}

impl RegionOptions {
    /// How many slots; by default twice the servers, so that the old and the new processes of a
    /// rolling restart have one each.
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = Some(slots);
        self
    }

    /// Permission bits of a new file; by default `SHMSTATS_MODE` (octal), else 0600. The umask
    /// does not cut it.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Write also to a file that belongs to this user, beside oneself and root.
    pub fn trust_uid(mut self, uid: u32) -> Self {
        self.trust.uids.push(uid);
        self
    }

    /// Creates the region. It has its name once it is complete, and not before.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`]; [`Error::Io`] where there is no room or no permission;
    /// [`Error::InvalidSchema`] for a number of slots out of range.
    pub fn create(&self, path: impl AsRef<Path>, schema: &Schema) -> Result<Region> {
        self.create_with(path.as_ref(), schema, no_hook)
    }

    pub(crate) fn create_with(
        &self,
        path: &Path,
        schema: &Schema,
        hook: impl Fn(&'static str),
    ) -> Result<Region> {
        let layout = self.layout(schema)?;
        let head = layout.encode(birth());
        let unnamed = Unnamed::new(path, &head, layout.file_size, self.access()?, &hook)?;
        // The lease comes before the name: who finds the file finds it attached to, so that it is
        // never taken for a leftover.
        let lease = attach(&unnamed.file, path)?;
        hook("create: after lease");
        let file = unnamed.name(path)?;
        hook("create: after name");
        if !file::is_in_memory(&file) {
            tracing::warn!(
                path = %path.display(),
                "the region is on a disk file system: write-back can stall its servers; \
                 put it on a tmpfs such as /dev/shm"
            );
        }
        Region::assemble(Some(path), file, layout::own_header(&head), layout, lease)
    }

    /// Opens the region, or creates it if there is none. A region of another schema, or with fewer
    /// slots than there are servers now, is replaced if nobody is attached to it.
    ///
    /// # Errors
    /// [`Error::SchemaMismatch`] where another schema is in use, and those of
    /// [`create`](Self::create) and [`Region::open`].
    pub fn open_or_create(&self, path: impl AsRef<Path>, schema: &Schema) -> Result<Region> {
        let path = path.as_ref();
        self.layout(schema)?; // Numbers out of range are refused, also where nothing is created.
        let deadline = Instant::now() + PATIENCE;
        for _ in 0..OPEN_TRIES {
            match self.open(path) {
                Ok(region) => match schema.difference(region.schema()) {
                    None if region.slot_count() >= self.needed_slots() => {
                        region.set_server_count(self.servers);
                        return Ok(region);
                    }
                    None => {
                        let (found, needed) = (region.slot_count(), self.needed_slots());
                        let difference = format!("expected {needed} slots or more, found {found}");
                        self.replace(region, difference, deadline)?;
                    }
                    Some(difference) => self.replace(region, difference, deadline)?,
                },
                Err(error) if error.io_kind() == Some(std::io::ErrorKind::NotFound) => {
                    match self.create(path, schema) {
                        Err(Error::AlreadyExists { .. }) => {}
                        done => return done,
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::Removed { path: path.into() })
    }

    /// As [`open_or_create`](Self::open_or_create), but never fails: where there can be no region,
    /// warns once and returns a private one, so that serving always starts.
    pub fn open_or_private(&self, path: impl AsRef<Path>, schema: &Schema) -> Region {
        let path = path.as_ref();
        self.open_or_create(path, schema).unwrap_or_else(|error| {
            tracing::warn!(%error, "no shared stats: this process counts for itself");
            let in_range = |n: u32| n.clamp(1, MAX_SLOTS);
            let servers = in_range(self.servers);
            RegionOptions { servers, slots: self.slots.map(in_range), ..self.clone() }
                .private(schema)
        })
    }

    /// Opens an existing region, whatever its schema, to write to it.
    ///
    /// # Errors
    /// As [`Region::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Region> {
        let path = path.as_ref();
        for _ in 0..OPEN_TRIES {
            let file = match file::open_file(path, Purpose::Write(&self.trust)) {
                Err(Error::Removed { .. }) => continue,
                opened => opened?,
            };
            let (header, layout) = file::read_layout(path, &file)?;
            let lease = attach(&file, path)?;
            if lease.links().map_err(|e| refused(e, path, "the region"))? == 0 {
                continue; // Removed between opening and attaching: the path may name a new one.
            }
            // A sparse copy of a region has holes that a full file system cannot fill later.
            file::reserve(path, &file, layout.file_size)?;
            let region = Region::assemble(Some(path), file, header, layout, lease)?;
            region.adopt_boot()?;
            return Ok(region);
        }
        Err(Error::Removed { path: path.into() })
    }

    /// A region that only this process can reach: same layout, same handles, nobody else sees it.
    ///
    /// # Panics
    /// When the system has no memory or descriptors for it, or the number of slots is out of range.
    #[must_use]
    pub fn private(&self, schema: &Schema) -> Region {
        let make = || {
            let layout = self.layout(schema)?;
            let head = layout.encode(birth());
            let file = file::anonymous(&head, layout.file_size)?;
            let lease = Lease::attach_private(&file)
                .map_err(|refusal| refused(refusal, Path::new("memfd:shmstats"), "the region"))?;
            Region::assemble(None, file, layout::own_header(&head), layout, lease)
        };
        make().unwrap_or_else(|error| panic!("no private stats: {error}"))
    }

    /// Removes a region of another schema, or returns for another try after a while: those who
    /// are attached to it may be servers of the new schema that are here for the same.
    fn replace(&self, old: Region, difference: String, deadline: Instant) -> Result<()> {
        let path = old.path().to_path_buf();
        match old.remove() {
            Ok(()) => {
                tracing::info!(
                    path = %path.display(), %difference,
                    "replaced a region that did not fit and that nobody was attached to"
                );
                Ok(())
            }
            Err(Error::Held { .. }) if Instant::now() < deadline => {
                // Detached by now. Each for a time of its own, so that one of them finds itself
                // alone.
                let mine = clock::monotonic_ns() ^ u64::from(std::process::id());
                std::thread::sleep(Duration::from_micros(500 + mine % 16_384));
                Ok(())
            }
            Err(Error::Held { .. }) => Err(Error::SchemaMismatch { path, difference }),
            Err(Error::Removed { .. }) => Ok(()), // By another of them.
            Err(error) => Err(error),
        }
    }

    /// With fewer slots than this, a region is not worth keeping.
    fn needed_slots(&self) -> u32 {
        self.slots.map_or(self.servers, |slots| slots.min(self.servers))
    }

    fn layout(&self, schema: &Schema) -> Result<Layout> {
        // Twice as many, as far as a region goes.
        let twice = self.servers.saturating_mul(2).min(MAX_SLOTS.max(self.servers));
        let slots = self.slots.unwrap_or(twice);
        for (what, found) in [("number of servers", self.servers), ("number of slots", slots)] {
            if !(1..=MAX_SLOTS).contains(&found) {
                return Err(Error::InvalidSchema {
                    what: what.into(),
                    expected: format!("1 to {MAX_SLOTS}"),
                    found: found.to_string(),
                });
            }
        }
        Ok(Layout::of(schema, self.servers, slots))
    }

    /// What the operator asked for in the environment holds unless the program says otherwise.
    fn access(&self) -> Result<Access> {
        let given = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let mode = match (self.mode, given("SHMSTATS_MODE")) {
            (Some(mode), _) => mode,
            (None, Some(text)) => u32::from_str_radix(&text, 8)
                .ok()
                .filter(|mode| *mode <= 0o777 && mode & 0o600 == 0o600)
                .ok_or(Error::Environment {
                    variable: "SHMSTATS_MODE",
                    expected: "octal permission bits that let the owner read and write, like 0640",
                    found: format!("{text:?}"),
                })?,
            (None, None) => 0o600,
        };
        let gid = match given("SHMSTATS_GROUP") {
            None => None,
            Some(text) => {
                let named = || Group::from_name(&text).ok().flatten().map(|g| g.gid.as_raw());
                let gid = text.parse().ok().or_else(named).ok_or(Error::Environment {
                    variable: "SHMSTATS_GROUP",
                    expected: "the name or number of a group",
                    found: format!("{text:?}"),
                })?;
                Some(gid)
            }
        };
        Ok(Access { mode, gid })
    }
}

fn birth() -> crate::layout::Birth {
    crate::layout::Birth {
        created_at: clock::realtime_ns(),
        monotonic: clock::monotonic_ns(),
        boot_id: clock::boot_id(),
    }
}

fn attach(file: &File, path: &Path) -> Result<Lease> {
    Lease::attach(file).map_err(|refusal| refused(refusal, path, "the region"))
}

/// Turns a lease's refusal into an error that names what was asked for.
pub(crate) fn refused(refusal: Refusal, path: &Path, what: impl Into<String>) -> Error {
    match refusal {
        Refusal::Held { by_this_process } => {
            Error::Held { what: what.into(), path: path.into(), by_this_process, pid: None }
        }
        Refusal::Os(source) => Error::io("take a lease on", path, source),
    }
}

/// A mapped region that this process may write to. Cheap to clone; the mapping and the attach
/// lease live as long as any clone, server or handle.
#[derive(Clone, Debug)]
pub struct Region(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: Option<PathBuf>,
    /// Re-opened for each lease; holds no lock itself and so survives a fork.
    file: File,
    view: View,
    lease: Lease,
}

impl Region {
    /// How a region for so many servers is made.
    pub fn options(servers: u32) -> RegionOptions {
        RegionOptions { servers, slots: None, mode: None, trust: Trust::default() }
    }

    /// Creates a region for so many servers; see [`RegionOptions::create`].
    ///
    /// # Errors
    /// As [`RegionOptions::create`].
    pub fn create(path: impl AsRef<Path>, schema: &Schema, servers: u32) -> Result<Self> {
        Region::options(servers).create(path, schema)
    }

    /// Opens an existing region to write to it. [`schema`](Self::schema) says what it measures.
    ///
    /// # Errors
    /// [`Error::Io`] where there is none; [`Error::NotARegularFile`], [`Error::InvalidRegion`],
    /// [`Error::UnsupportedVersion`] and [`Error::UnsupportedFileSystem`] for what cannot be one;
    /// [`Error::Untrusted`] for a file of another user or with more names than one.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Region::options(1).open(path)
    }

    /// Opens or creates a region; see [`RegionOptions::open_or_create`].
    ///
    /// # Errors
    /// As [`RegionOptions::open_or_create`].
    pub fn open_or_create(path: impl AsRef<Path>, schema: &Schema, servers: u32) -> Result<Self> {
        Region::options(servers).open_or_create(path, schema)
    }

    /// A region that only this process can reach; see [`RegionOptions::private`].
    #[must_use]
    pub fn private(schema: &Schema, servers: u32) -> Self {
        Region::options(servers).private(schema)
    }

    fn assemble(
        path: Option<&Path>,
        file: File,
        header: Header,
        layout: Layout,
        lease: Lease,
    ) -> Result<Self> {
        let shown = path.unwrap_or(Path::new("memfd:shmstats"));
        let mapping =
            Mapping::new(&file, layout.file_size, true).map_err(|e| Error::io("map", shown, e))?;
        let view = View { mapping: Arc::new(mapping), header, layout: Arc::new(layout) };
        Ok(Region(Arc::new(Inner { path: path.map(Path::to_path_buf), file, view, lease })))
    }

    /// Gauges and times of an earlier boot mean nothing in this one: the first to write to the
    /// region hides them, by raising the reset number as a reset does.
    ///
    /// Under a lock of its own, once only: a number raised again later would hide what an early
    /// server has set since. Who dies half way leaves the old boot id, and the next one raises the
    /// number once more, under which nobody has set anything.
    fn adopt_boot(&self) -> Result<()> {
        let boot = boot_word();
        if boot == UNKNOWN_BOOT {
            return Ok(()); // /proc does not tell, so nobody can say that it is another.
        }
        let block = self.view().region_block();
        let is_of_this_boot = || block[RegionBlock::BOOT_ID].load(Ordering::Acquire) == boot;
        if is_of_this_boot() {
            return Ok(());
        }
        let adopt = || {
            if is_of_this_boot() {
                return;
            }
            // Relaxed: the last store publishes them all.
            block[RegionBlock::RESET_NUMBER].fetch_add(1, Ordering::Relaxed);
            block[RegionBlock::RESET_AT].store(clock::monotonic_ns(), Ordering::Relaxed);
            self.view().primary_block()[PrimaryBlock::DRAINED_AT].store(0, Ordering::Relaxed);
            // Release: who sees the new boot sees the new reset number.
            block[RegionBlock::BOOT_ID].store(boot, Ordering::Release);
        };
        let locked = self.lease().while_alone_in_boot(adopt);
        locked.map_err(|e| refused(e, self.path(), "the first use after a boot"))
    }

    /// What is measured.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.0.view.layout.schema
    }

    /// Where the file is, or was; `memfd:shmstats` for a private one.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path.as_deref().unwrap_or(Path::new("memfd:shmstats"))
    }

    /// Whether nobody else can reach this region.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.0.path.is_none()
    }

    /// How many servers were configured.
    #[must_use]
    pub fn server_count(&self) -> u32 {
        self.0.view.server_count()
    }

    /// A restart with another number of servers goes on with the same region.
    fn set_server_count(&self, servers: u32) {
        let word = &self.view().region_block()[RegionBlock::SERVER_COUNT];
        // Relaxed: a number for people.
        word.store(u64::from(servers), Ordering::Relaxed);
    }

    /// How many slots there are.
    #[must_use]
    pub fn slot_count(&self) -> u32 {
        self.0.view.layout.slot_count
    }

    /// Whether the file has lost its name: servers go on, but nobody else finds it any more.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        !self.is_private() && self.0.lease.links().is_ok_and(|links| links == 0)
    }

    /// Removes the file, if nobody else is attached to it.
    ///
    /// # Errors
    /// [`Error::Held`] while any other `Region`, server or handle, of this process or another, is
    /// attached; [`Error::Removed`] if the path names something else by now.
    pub fn remove(self) -> Result<()> {
        self.remove_with(no_hook)
    }

    pub(crate) fn remove_with(self, hook: impl Fn(&'static str)) -> Result<()> {
        let Some(path) = &self.0.path else { return Ok(()) };
        hook("remove: before lease");
        if !self.0.lease.is_mine() {
            return self.of_this_process()?.remove_with(hook); // In a forked child.
        }
        let alone = self.0.lease.attach_alone().map_err(|e| refused(e, path, "the region"))?;
        hook("remove: after lease");
        // Every server and handle of this process holds a clone.
        let by_this_process = Arc::strong_count(&self.0) > 1;
        if !alone || by_this_process {
            let _ = self.0.lease.attach_shared();
            let (what, path) = ("the region".into(), path.clone());
            return Err(Error::Held { what, path, by_this_process, pid: None });
        }
        // Whoever else removes this file needs the lease too, so the answer stays true.
        if !file::is_at(&self.0.file, path) {
            return Err(Error::Removed { path: path.clone() });
        }
        std::fs::remove_file(path).map_err(|e| Error::io("remove", path, e))?;
        hook("remove: after unlinking");
        Ok(())
    }

    /// In a forked child, the same region with an attach lease of the child's own, so that it is
    /// not removed while the child has it; else itself. Claiming and becoming primary do this too.
    ///
    /// # Errors
    /// [`Error::Io`] where the system refuses another descriptor.
    pub fn of_this_process(&self) -> Result<Region> {
        if self.0.lease.is_mine() {
            return Ok(self.clone());
        }
        if self.0.lease.is_local() {
            let held = Refusal::Held { by_this_process: false };
            return Err(refused(held, self.path(), "the region"));
        }
        let shared = |e| Error::io("keep open", self.path(), e);
        Ok(Region(Arc::new(Inner {
            path: self.0.path.clone(),
            file: self.0.file.try_clone().map_err(shared)?,
            view: self.0.view.clone(),
            lease: attach(&self.0.file, self.path())?,
        })))
    }

    pub(crate) fn view(&self) -> &View {
        &self.0.view
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.0.lease
    }

    pub(crate) fn file(&self) -> &File {
        &self.0.file
    }
}

/// What [`boot_word`] says where /proc does not tell.
const UNKNOWN_BOOT: u64 = 1;

/// The first half of the boot id, as the region block keeps it; never 0.
pub(crate) fn boot_word() -> u64 {
    layout::boot_word(clock::boot_id())
}
