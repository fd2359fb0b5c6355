//! Finding regions: by what a file begins with, and not by its name.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use shmstats::{Inspector, Observation, region};

use crate::fail::Failure;

/// The bytes every region begins with, in every version.
const MAGIC: [u8; 8] = *b"shmstats";
/// What the library and the commands end the names of regions with.
pub(crate) const SUFFIX: &str = ".shmstats";

/// What files are called that have no name of their own yet, where a file system needs one.
const TEMPORARY: &str = ".shmstats-";

/// A file that is a region, or should be one.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) opened: Result<Opened, shmstats::Error>,
}

#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) inspector: Inspector,
    pub(crate) observation: Observation,
}

impl Found {
    pub(crate) fn is_live(&self) -> bool {
        self.opened.as_ref().is_ok_and(|opened| opened.observation.attached)
    }

    /// Why this user may not look at it, where that is so.
    pub(crate) fn unreadable(&self) -> Option<&shmstats::Error> {
        let denied =
            |e: &&shmstats::Error| e.io_kind() == Some(std::io::ErrorKind::PermissionDenied);
        self.opened.as_ref().err().filter(denied)
    }

    /// Whether it is a region in the making, or what was left of that.
    pub(crate) fn is_temporary(&self) -> bool {
        is_temporary(&self.path)
    }

    /// The file's name for people.
    pub(crate) fn name(&self) -> String {
        name(&self.path)
    }
}

fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(TEMPORARY.as_bytes()))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The folder to look in if none is named.
pub(crate) fn folder(given: Option<&Path>) -> PathBuf {
    given.map_or_else(region::default_dir, Path::to_path_buf)
}

/// The files of a folder that are, or by their name should be, regions; in order of their names.
pub(crate) fn candidates(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut paths = list(folder)?;
    paths.retain(|path| !is_temporary(path));
    Ok(paths)
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let cannot = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotADirectory => {
            Failure::Bad(format!("{}: expected a directory, found a file", folder.display()))
        }
        _ => Failure::Bad(format!("cannot list {}: {e}", folder.display())),
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot)? {
        let Ok(entry) = entry else { continue };
        // Links, pipes and devices are nobody's region.
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let path = entry.path();
            if path.as_os_str().as_bytes().ends_with(SUFFIX.as_bytes()) || has_magic(&path) {
                paths.push(path);
            }
        }
    }
    paths.sort();
    Ok(paths)
}

fn has_magic(path: &Path) -> bool {
    // Whatever the file has become since it was listed, opening it must not wait or act.
    let flags = (nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_NOFOLLOW).bits();
    let mut start = [0; MAGIC.len()];
    let read = |mut file: File| file.read_exact(&mut start);
    File::options().read(true).custom_flags(flags).open(path).and_then(read).is_ok()
        && start == MAGIC
}

/// Opens all that a folder has. Files that went away meanwhile are not there.
pub(crate) fn all(folder: &Path) -> Result<Vec<Found>, Failure> {
    Ok(with_temporaries(folder)?.into_iter().filter(|found| !found.is_temporary()).collect())
}

/// As [`all`], and regions in the making.
pub(crate) fn with_temporaries(folder: &Path) -> Result<Vec<Found>, Failure> {
    let open = |path: PathBuf| {
        let opened = open(&path);
        let gone = |e: &shmstats::Error| e.io_kind() == Some(std::io::ErrorKind::NotFound);
        (!opened.as_ref().is_err_and(gone)).then_some(Found { path, opened })
    };
    Ok(list(folder)?.into_iter().filter_map(open).collect())
}

pub(crate) fn open(path: &Path) -> Result<Opened, shmstats::Error> {
    let mut inspector = Inspector::open(path)?;
    let observation = inspector.observe()?;
    Ok(Opened { inspector, observation })
}

/// The path, or where there is no such file and it is a mere name, that of the region of this name
/// in the default folder: as `ls` lists them, or without the ending.
pub(crate) fn by_name(path: &Path) -> PathBuf {
    if path.components().count() != 1 || path.is_absolute() || path.symlink_metadata().is_ok() {
        return path.into();
    }
    let there = folder(None).join(path);
    let mut with_suffix = there.clone().into_os_string();
    with_suffix.push(SUFFIX);
    let known = [there, with_suffix.into()].into_iter().find(|p| p.symlink_metadata().is_ok());
    known.unwrap_or(path.into())
}

/// The path given, or that of the only live region in the default folder.
pub(crate) fn one(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        return Ok(by_name(path));
    }
    let folder = folder(None);
    let mut found = all(&folder)?;
    let list = |found: &[Found], live: bool| {
        let names = found.iter().filter(|f| f.is_live() == live).map(Found::name);
        names.collect::<Vec<_>>().join(", ")
    };
    let (live, rest) = (list(&found, true), list(&found, false));
    let unreadable: Vec<String> =
        found.iter().filter_map(Found::unreadable).map(ToString::to_string).collect();
    let folder = folder.display();
    match found.iter().filter(|f| f.is_live()).count() {
        1 => {
            found.retain(Found::is_live);
            Ok(found.remove(0).path)
        }
        0 if !unreadable.is_empty() => Err(Failure::Bad(format!(
            "no live region in {folder} that you may read: {}",
            unreadable.join("; ")
        ))),
        0 if rest.is_empty() => Err(Failure::Bad(format!("no region in {folder}"))),
        0 => Err(Failure::Bad(format!(
            "no live region in {folder}; name one of those that are not: {rest}"
        ))),
        n => Err(Failure::Usage(format!("{n} live regions in {folder}; name one of {live}"))),
    }
}
