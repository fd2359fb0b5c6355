//! Regions as files: making one, opening one, and what a file must be before it is believed.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{
    AT_FDCWD, AtFlags, FallocateFlags, OFlag, RenameFlags, fallocate, open, renameat2,
};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, lstat};
use nix::sys::statfs::{self, FsType, fstatfs};
use nix::unistd::{Gid, Uid, fchown, geteuid, linkat};

use crate::error::{Error, Result};
use crate::layout::{Fault, Header, Layout, MAX_STRINGS, read_header};

/// What is asked of a file by one who will write to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    /// Owners to accept beside this user and root.
    pub(crate) uids: Vec<u32>,
}

/// The permissions of a new file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) mode: u32,
    pub(crate) gid: Option<u32>,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose<'a> {
    Read,
    Write(&'a Trust),
}

/// Opens a region's file without side effects: a FIFO, a device or a symbolic link is neither
/// followed nor touched.
pub(crate) fn open_file(path: &Path, purpose: Purpose<'_>) -> Result<File> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let place = open(path, flags, Mode::empty()).map_err(|e| Error::io("open", path, e))?;
    let stat = fstat(&place).map_err(|e| Error::io("look at", path, e))?;
    check_kind(path, &stat)?;
    if let Purpose::Write(trust) = purpose {
        check_trust(path, &stat, trust)?;
    }
    let (action, access) = match purpose {
        Purpose::Read => ("read", OFlag::O_RDONLY),
        Purpose::Write(_) => ("write to", OFlag::O_RDWR),
    };
    // The very inode looked at, whatever the path names by now.
    let again = format!("/proc/self/fd/{}", place.as_raw_fd());
    let file = open(again.as_str(), access | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK, Mode::empty())
        .map_err(|errno| match errno {
        Errno::EACCES | Errno::EPERM => Error::PermissionDenied {
            action,
            path: path.into(),
            uid: geteuid().as_raw(),
            owner: stat.st_uid,
            group: stat.st_gid,
            mode: stat.st_mode & 0o7777,
        },
        other => Error::io("open", path, other),
    })?;
    let file = File::from(file);
    check_file_system(path, &file)?;
    Ok(file)
}

fn check_kind(path: &Path, stat: &FileStat) -> Result<()> {
    let found = match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => return Ok(()),
        SFlag::S_IFDIR => "a directory",
        SFlag::S_IFLNK => "a symbolic link",
        SFlag::S_IFIFO => "a FIFO",
        SFlag::S_IFSOCK => "a socket",
        SFlag::S_IFCHR | SFlag::S_IFBLK => "a device",
        _ => "something else",
    };
    Err(Error::NotARegularFile { path: path.into(), found })
}

fn check_trust(path: &Path, stat: &FileStat, trust: &Trust) -> Result<()> {
    let me = geteuid().as_raw();
    let refuse = |expected: String, found: String| {
        Err(Error::Untrusted { path: path.into(), expected, found })
    };
    if ![me, 0].contains(&stat.st_uid) && !trust.uids.contains(&stat.st_uid) {
        let expected = format!("a file of uid {me}, of root or of a uid named as trusted");
        return refuse(expected, format!("a file of uid {}", stat.st_uid));
    }
    match stat.st_nlink {
        0 => Err(Error::Removed { path: path.into() }),
        1 => Ok(()),
        links => refuse("a file with one name".into(), format!("one with {links} hard links")),
    }
}

/// Network and FUSE file systems do not share a mapping's memory between machines, or at all, and
/// their locks are not this kernel's.
fn check_file_system(path: &Path, file: &File) -> Result<()> {
    let kind = fstatfs(file).map_err(|e| Error::io("look at", path, e))?.filesystem_type();
    match remote(kind) {
        Some(name) => Err(Error::UnsupportedFileSystem { path: path.into(), found: name.into() }),
        None => Ok(()),
    }
}

fn remote(kind: FsType) -> Option<&'static str> {
    const NAMED: [(FsType, &str); 5] = [
        (statfs::NFS_SUPER_MAGIC, "NFS"),
        (statfs::SMB_SUPER_MAGIC, "SMB"),
        (statfs::FUSE_SUPER_MAGIC, "FUSE"),
        (statfs::CODA_SUPER_MAGIC, "Coda"),
        (statfs::AFS_SUPER_MAGIC, "AFS"),
    ];
    // Not in the bindings: from linux/magic.h, the kernel's fs/ceph and fs/smb, and the file
    // systems' own sources.
    const OTHERS: [(i64, &str); 8] = [
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x0102_1997, "9P"),
        (0x00c3_6400, "Ceph"),
        (0x6b41_4653, "AFS"),
        (0x0bd0_0bd0, "Lustre"),
        (0x4750_4653, "GPFS"),
        (0x1983_0326, "BeeGFS"),
    ];
    let named = NAMED.iter().find(|(k, _)| *k == kind).map(|(_, name)| *name);
    named.or_else(|| OTHERS.iter().find(|(k, _)| *k == kind.0).map(|(_, name)| *name))
}

/// Whether the file lives in memory. On a disk, the kernel's write-back can stall a writer.
pub(crate) fn is_in_memory(file: &File) -> bool {
    fstatfs(file).is_ok_and(|stat| {
        // RAMFS_MAGIC, from linux/magic.h.
        stat.filesystem_type() == statfs::TMPFS_MAGIC || stat.filesystem_type().0 == 0x8584_58f6
    })
}

/// An onlooker cannot fill holes. Where files live in memory, a look into one through a mapping
/// takes memory, and is a SIGBUS once there is none.
pub(crate) fn refuse_holes(path: &Path, file: &File) -> Result<()> {
    let metadata = file.metadata().map_err(|e| Error::io("look at", path, e))?;
    let (size, there) = (metadata.len(), 512 * metadata.blocks());
    let on_tmpfs = fstatfs(file).is_ok_and(|stat| stat.filesystem_type() == statfs::TMPFS_MAGIC);
    if there >= size || !on_tmpfs {
        return Ok(());
    }
    Err(Error::InvalidRegion {
        path: path.into(),
        field: "file_size".into(),
        expected: format!("{size} bytes of memory (a copy without holes)"),
        found: format!("{there} bytes of memory"),
    })
}

/// Reads and checks everything before the slots, from a private copy.
pub(crate) fn read_layout(path: &Path, file: &File) -> Result<(Header, Layout)> {
    let invalid = |fault: Fault| Error::InvalidRegion {
        path: path.into(),
        field: fault.field,
        expected: fault.expected,
        found: fault.found,
    };
    let size = file.metadata().map_err(|e| Error::io("look at", path, e))?.len();
    let start = read_start(path, file, size_of::<Header>())?;
    let header = read_header(&start, size).map_err(|fault| match fault {
        Fault { field, found, .. } if field == "version" => Error::UnsupportedVersion {
            path: path.into(),
            expected: crate::layout::VERSION,
            found: found.parse().unwrap_or(0),
        },
        fault => invalid(fault),
    })?;
    // The checked header bounds this: tables and strings have most sizes.
    debug_assert!(header.slots_offset < 2 * MAX_STRINGS as u64);
    let head = read_start(path, file, header.slots_offset as usize)?;
    let layout = Layout::decode(&header, &head).map_err(invalid)?;
    Ok((header, layout))
}

fn read_start(path: &Path, file: &File, want: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; want];
    let mut have = 0;
    while have < want {
        match file.read_at(&mut bytes[have..], have as u64) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io("read", path, e)),
        }
    }
    bytes.truncate(have);
    Ok(bytes)
}

/// Gives every byte up to `size` a page or block now. A full file system is an error here, and not
/// a SIGBUS at some later add.
pub(crate) fn reserve(path: &Path, file: &File, size: usize) -> Result<()> {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    loop {
        // Not posix_fallocate: where the file system has no such call, the C library writes a zero
        // to each page that seems to hold one, which can undo a server's write in a live region.
        match fallocate(file, FallocateFlags::empty(), 0, size) {
            Ok(()) => return Ok(()),
            Err(Errno::EINTR) => {} // A profiler's timer, say.
            Err(Errno::EOPNOTSUPP) => return write_holes(path, file, size as u64),
            Err(errno) => return Err(Error::io("reserve room for", path, errno)),
        }
    }
}

/// For file systems without fallocate(2): what is beyond the file's end is written, and a hole
/// before it is an error.
fn write_holes(path: &Path, file: &File, size: u64) -> Result<()> {
    let io = |e| Error::io("reserve room for", path, e);
    let metadata = file.metadata().map_err(io)?;
    let mut at = metadata.len();
    let zeros = [0; 4096];
    while at < size {
        let len = zeros.len().min((size - at) as usize);
        at += file.write_at(&zeros[..len], at).map_err(io)? as u64;
    }
    // A file system in memory has no blocks to count: every page read or written is there.
    if metadata.len() == 0 || is_in_memory(file) || 512 * metadata.blocks() >= size {
        return Ok(());
    }
    Err(io(Errno::EOPNOTSUPP.into()))
}

/// A new file that has no name yet, complete but for its slots, which are zero.
pub(crate) struct Unnamed {
    pub(crate) file: File,
    /// Where the file system cannot make files without a name: the temporary one.
    temporary: Option<PathBuf>,
}

impl Unnamed {
    /// Makes the file in the folder of `path`, writes `head` and reserves `size` bytes.
    pub(crate) fn new(
        path: &Path,
        head: &[u8],
        size: usize,
        access: Access,
        hook: &impl Fn(&'static str),
    ) -> Result<Self> {
        hook("create: before file");
        let mut unnamed = Self::in_folder_of(path)?;
        hook("create: after file");
        let file = &mut unnamed.file;
        reserve(path, file, size)?;
        hook("create: after room");
        fill(path, file, head)?;
        hook("create: after head");
        // fchmod and not the creation mode: the umask must not cut what was asked for.
        let io = |action, e: io::Error| Error::io(action, path, e);
        if let Some(gid) = access.gid {
            let gid = Some(Gid::from_raw(gid));
            fchown(file.as_fd(), None::<Uid>, gid).map_err(|e| io("give a group to", e.into()))?;
        }
        let permissions = std::fs::Permissions::from_mode(access.mode);
        file.set_permissions(permissions).map_err(|e| io("set the mode of", e))?;
        Ok(unnamed)
    }

    fn in_folder_of(path: &Path) -> Result<Self> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        // Before anything is made there: FUSE keeps a removed file, under another name, for as long
        // as it is open and a moment more.
        let place = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let place = open(folder, place, Mode::empty())
            .map_err(|e| Error::io("create a file in", folder, e))?;
        check_file_system(path, &File::from(place))?;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        match open(folder, flags | OFlag::O_TMPFILE, mode) {
            Ok(fd) => return Ok(Unnamed { file: fd.into(), temporary: None }),
            // The file system, or the kernel behind a sandbox, has no O_TMPFILE.
            Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::EINVAL | Errno::ENOSYS) => {}
            Err(errno) => return Err(Error::io("create a file in", folder, errno)),
        }
        let unique = format!(".shmstats-{}-{}", std::process::id(), crate::clock::monotonic_ns());
        let name = folder.join(unique);
        let fd = open(&name, flags | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW, mode)
            .map_err(|e| Error::io("create", &name, e))?;
        Ok(Unnamed { file: fd.into(), temporary: Some(name) })
    }

    /// Gives the file its name, unless there is one of that name.
    pub(crate) fn name(mut self, path: &Path) -> Result<File> {
        let named = match self.temporary.take() {
            Some(temporary) => {
                let flags = RenameFlags::RENAME_NOREPLACE;
                renameat2(AT_FDCWD, &temporary, AT_FDCWD, path, flags).inspect_err(|_| {
                    self.temporary = Some(temporary);
                })
            }
            None => {
                let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                let flags = AtFlags::AT_SYMLINK_FOLLOW;
                linkat(AT_FDCWD, unnamed.as_str(), AT_FDCWD, path, flags)
            }
        };
        match named {
            Ok(()) => self.file.try_clone().map_err(|e| Error::io("keep open", path, e)),
            Err(Errno::EEXIST) => Err(Error::AlreadyExists { path: path.into() }),
            Err(errno) => Err(Error::io("give a name to", path, errno)),
        }
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = std::fs::remove_file(temporary);
        }
    }
}

fn fill(path: &Path, file: &mut File, head: &[u8]) -> Result<()> {
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.write_all(head))
        .map_err(|e| Error::io("write", path, e))
}

/// A file of the same form that only this process, and those it hands it to, can reach.
pub(crate) fn anonymous(head: &[u8], size: usize) -> Result<File> {
    let path = Path::new("memfd:shmstats");
    let fd = memfd_create(c"shmstats", MFdFlags::MFD_CLOEXEC).or_else(|errno| {
        // A sandbox that does not allow it; a file without a name is as good.
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_TMPFILE;
        let folders = [default_dir(), std::env::temp_dir()];
        let nameless = |folder: &PathBuf| open(folder, flags, Mode::S_IRUSR | Mode::S_IWUSR).ok();
        folders.iter().find_map(nameless).ok_or(errno)
    });
    let mut file = File::from(fd.map_err(|e| Error::io("create", path, e))?);
    reserve(path, &file, size)?;
    fill(path, &mut file, head)?;
    Ok(file)
}

/// Whether `path` still names this very file.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), lstat(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.st_dev, there.st_ino),
        _ => false,
    }
}

/// The folder where regions live by default: `SHMSTATS_DIR`, else `/dev/shm`.
#[must_use]
pub fn default_dir() -> PathBuf {
    match std::env::var_os("SHMSTATS_DIR") {
        Some(dir) if !dir.as_bytes().is_empty() => dir.into(),
        _ => "/dev/shm".into(),
    }
}

/// The default place of the region called `name`: `NAME.shmstats` in [`default_dir`].
#[must_use]
pub fn default_path(name: &str) -> PathBuf {
    default_dir().join(format!("{name}.shmstats"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers as statfs(2) and `stat -f -c %t` show them.
    #[test]
    fn file_systems_of_other_machines() {
        let found = |kind: i64| remote(FsType(kind));
        for (kind, name) in [(0x6969, "NFS"), (0x6573_5546, "FUSE"), (0xff53_4d42, "CIFS")] {
            assert_eq!(found(kind), Some(name));
        }
        // tmpfs, ext4, XFS, Btrfs, overlay.
        for kind in [0x0102_1994, 0xef53, 0x5846_5342, 0x9123_683e, 0x794c_7630] {
            assert_eq!(found(kind), None, "{kind:x}");
        }
    }
}
