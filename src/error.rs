//! What can go wrong, with what was expected and what was found.

use std::io;
use std::path::PathBuf;

use thiserror::Error as ThisError;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every error of this crate.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("cannot {action} {}: {source}", path.display())]
    #[non_exhaustive]
    Io {
        /// What was being done, as a verb.
        action: &'static str,
        /// The file it was done to.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file's mode or owner does not let this user do what was asked.
    #[error(
        "cannot {action} {}: permission denied to uid {uid}; it belongs to uid {owner} gid {group} \
         with mode {mode:04o}: ask for the group, or set SHMSTATS_MODE (0640 lets a group read) where it is created",
        path.display()
    )]
    #[non_exhaustive]
    PermissionDenied {
        /// What was being done.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Who asked.
        uid: u32,
        /// The file's owner.
        owner: u32,
        /// The file's group.
        group: u32,
        /// The file's permission bits.
        mode: u32,
    },
    /// A program could not be started.
    #[error("cannot start {program}: {source}")]
    #[non_exhaustive]
    Spawn {
        /// The program.
        program: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A schema breaks a rule; nothing was created.
    #[error("invalid schema: {what}: expected {expected}, found {found:?}")]
    #[non_exhaustive]
    InvalidSchema {
        /// Which part of it.
        what: String,
        /// The rule.
        expected: String,
        /// What was given.
        found: String,
    },
    /// There is already a file of this name.
    #[error(
        "{} exists already; `open_or_create` goes on with it, also after a crash",
        path.display()
    )]
    #[non_exhaustive]
    AlreadyExists {
        /// The file.
        path: PathBuf,
    },
    /// The path is not a regular file.
    #[error("{}: expected a regular file, found {found}", path.display())]
    #[non_exhaustive]
    NotARegularFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The file is not a region, or is damaged. It is never repaired.
    #[error("{}: not a valid region: {field}: expected {expected}, found {found}", path.display())]
    #[non_exhaustive]
    InvalidRegion {
        /// The file.
        path: PathBuf,
        /// Which field of it, as `docs/format.md` names it.
        field: String,
        /// What the format asks for there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The region's format version is not one this build can read.
    #[error("{}: format version {found}, but this build reads version {expected}", path.display())]
    #[non_exhaustive]
    UnsupportedVersion {
        /// The file.
        path: PathBuf,
        /// The version of this build.
        expected: u32,
        /// The version of the file.
        found: u32,
    },
    /// The region measures something else than the schema asked for.
    #[error("{}: the region has another schema: {difference}", path.display())]
    #[non_exhaustive]
    SchemaMismatch {
        /// The file.
        path: PathBuf,
        /// The first difference, in words.
        difference: String,
    },
    /// A writer refuses a file that others could have made to mislead it.
    #[error("{}: refusing to write: expected {expected}, found {found}", path.display())]
    #[non_exhaustive]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// What a writer asks of a file.
        expected: String,
        /// What it is.
        found: String,
    },
    /// Regions cannot live on this kind of file system.
    #[error("{}: expected tmpfs or a local disk file system, found {found}", path.display())]
    #[non_exhaustive]
    UnsupportedFileSystem {
        /// The file.
        path: PathBuf,
        /// Its file system.
        found: String,
    },
    /// The file lost its name: somebody removed it.
    #[error("{}: the file was removed", path.display())]
    #[non_exhaustive]
    Removed {
        /// The name it had.
        path: PathBuf,
    },
    /// Somebody holds the lease.
    #[error("{what} of {} is already held by {}", path.display(), holder(*by_this_process, *pid))]
    #[non_exhaustive]
    Held {
        /// "slot 3", "the primary lease" or "the region".
        what: String,
        /// The region.
        path: PathBuf,
        /// Whether this very process holds it.
        by_this_process: bool,
        /// The pid its holder wrote into the region, if any; for people only.
        pid: Option<u64>,
    },
    /// Every slot is held.
    #[error("{}: all {slots} slots are held", path.display())]
    #[non_exhaustive]
    NoFreeSlot {
        /// The region.
        path: PathBuf,
        /// How many slots it has.
        slots: u32,
    },
    /// There is no slot of this index.
    #[error("slot {index} of {}: expected an index below {slots}", path.display())]
    #[non_exhaustive]
    NoSuchSlot {
        /// The region.
        path: PathBuf,
        /// The index asked for.
        index: u32,
        /// How many slots the region has.
        slots: u32,
    },
    /// The schema has no such record.
    #[error("no {expected} named {name}{labels}: {hint}")]
    #[non_exhaustive]
    NoSuchRecord {
        /// The kind asked for.
        expected: &'static str,
        /// The name asked for.
        name: String,
        /// The labels asked for, as `{key="value"}`, or nothing.
        labels: String,
        /// What the schema has instead.
        hint: String,
    },
    /// An environment variable cannot be used.
    #[error("environment variable {variable}: expected {expected}, found {found}")]
    #[non_exhaustive]
    Environment {
        /// Its name.
        variable: &'static str,
        /// What may stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// There is more than one may ask for at once.
    #[error("{}: expected at most {most} {what}, found {found}", path.display())]
    #[non_exhaustive]
    TooMany {
        /// The region.
        path: PathBuf,
        /// Of what.
        what: &'static str,
        /// The limit.
        most: usize,
        /// How many there would be.
        found: usize,
    },
}

fn holder(by_this_process: bool, pid: Option<u64>) -> String {
    match (by_this_process, pid) {
        (true, _) => "this process".into(),
        (false, Some(pid)) => format!("another process (pid {pid} by its own account)"),
        (false, None) => "another process".into(),
    }
}

impl Error {
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        Error::Io { action, path: path.into(), source: source.into() }
    }

    /// The kind of the system's answer, where this error is one.
    #[must_use]
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Error::Io { source, .. } | Error::Spawn { source, .. } => Some(source.kind()),
            Error::PermissionDenied { .. } => Some(io::ErrorKind::PermissionDenied),
            Error::AlreadyExists { .. } => Some(io::ErrorKind::AlreadyExists),
            _ => None,
        }
    }
}
