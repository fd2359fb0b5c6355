//! Leases: who is attached, who holds a slot, who is primary.
//!
//! A lease is an OFD byte-range lock (fcntl(2), "open file description locks") at an offset fixed
//! for all format versions, far behind any file's end. The kernel drops it with the last
//! descriptor of its description: when the holder closes it or dies, by whatever signal, across
//! PID namespaces and PID reuse. Every lease has a description of its own, re-opened through
//! /proc/self/fd (never by path), close-on-exec, and each one also holds the attach lock shared.
//!
//! `fork` shares descriptions with the child, whose copies would keep a dead parent's leases
//! alive. So every descriptor stands in a process-wide list, and a fork handler closes them all in
//! the child: `fstat`, `close` and atomic stores, nothing else, since other threads' locks may be
//! held for ever there.
#![allow(unsafe_code)]

mod entry;
mod fork;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::libc;
use nix::sys::stat::{Mode, fstat};

use self::entry::{Entry, LOCAL, TAKEN, entries};
pub(crate) use self::fork::fork_number;
use self::fork::{Calm, FORK_PATIENCE, watch_forks};
use crate::sync::{AtomicBool, Ordering, fence};

/// Where the lock bytes lie, whatever the version.
const BASE: i64 = 1 << 40;
pub(crate) const ATTACH: i64 = BASE;
pub(crate) const PRIMARY: i64 = BASE + 1;
/// Held for a moment by the first writer of a boot.
pub(crate) const BOOT: i64 = BASE + 2;
pub(crate) const SLOTS: i64 = BASE + 1024;

/// How long a claim waits for a holder that the kernel is still tearing down, or for a collector
/// that holds the attach lease for a moment.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// A thing that one process at a time may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    Primary,
    Slot(u32),
}

impl Seat {
    fn offset(self) -> i64 {
        match self {
            Seat::Primary => PRIMARY,
            Seat::Slot(i) => SLOTS + i64::from(i),
        }
    }
}

/// Why a lease could not be had.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Another description holds it; whether one of this very process.
    Held { by_this_process: bool },
    /// The system refused.
    Os(io::Error),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Refusal::Os(errno.into())
    }
}

/// A held lease: a description with the attach lock shared and perhaps a seat. Dropping it gives
/// both back.
#[derive(Debug)]
pub(crate) struct Lease {
    entry: &'static Entry,
    fork: u64,
    local: bool,
}

impl Lease {
    /// Attaches through a new description of `file`, opened with read and write permission.
    pub(crate) fn attach(file: &File) -> Result<Self, Refusal> {
        let lease = Lease::open(file)?;
        lease.wait(ATTACH, libc::F_RDLCK, PATIENCE)?;
        Ok(lease)
    }

    /// As [`attach`](Self::attach), to a file that only this process can reach. So where the kernel
    /// has no such locks, or no /proc to open a file again by, as in some sandboxes, the process's
    /// own list has to do.
    pub(crate) fn attach_private(file: &File) -> Result<Self, Refusal> {
        match Lease::attach(file) {
            Err(Refusal::Os(_)) => Lease::local(file),
            attached => attached,
        }
    }

    /// Attaches once more, and takes a seat if nobody holds it, waiting up to `patience` for it.
    pub(crate) fn take(
        &self,
        file: &File,
        seat: Seat,
        patience: Duration,
    ) -> Result<Self, Refusal> {
        let lease = if self.local { Lease::local(file)? } else { Lease::attach(file)? };
        lease.sit(seat, patience)?;
        Ok(lease)
    }

    /// Takes a seat with this lease's own description, which can hold one.
    pub(crate) fn sit(&self, seat: Seat, patience: Duration) -> Result<(), Refusal> {
        // Asked first, since another description of this process would be waited for in vain.
        if self.held_here(seat) {
            return Err(Refusal::Held { by_this_process: true });
        }
        // The kernel would grant a description what it has already; two threads must not both
        // believe they won.
        let mark = &self.entry.seat;
        if mark.compare_exchange(0, seat.offset(), Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(Refusal::Held { by_this_process: true });
        }
        if self.local {
            // SeqCst: of two that have both left their mark, one at least sees the other's here.
            fence(Ordering::SeqCst);
            let others = |entry: &&Entry| !std::ptr::eq(*entry, self.entry);
            if entries().filter(others).any(|entry| entry.holds(seat, self.entry.file())) {
                mark.store(0, Ordering::Release);
                return Err(Refusal::Held { by_this_process: true });
            }
        }
        self.wait(seat.offset(), libc::F_WRLCK, patience).inspect_err(|_| {
            mark.store(0, Ordering::Release);
        })
    }

    /// Gives the seat back and stays attached.
    pub(crate) fn stand(&self, seat: Seat) {
        if let (true, Some(fd)) = (self.is_mine(), self.fd()) {
            let range = lock_range(libc::F_UNLCK, seat.offset(), 1);
            // Nothing can be done about a failure, and the kernel unlocks at close in any case.
            let _ = fcntl(fd, FcntlArg::F_OFD_SETLK(&range));
        }
        self.entry.seat.store(0, Ordering::Release);
    }

    /// Takes the attach lock exclusively: nobody else is attached. `false` if somebody is.
    pub(crate) fn attach_alone(&self) -> Result<bool, Refusal> {
        self.set(ATTACH, libc::F_WRLCK)
    }

    /// Back from exclusive to shared; the kernel converts in one step.
    pub(crate) fn attach_shared(&self) -> Result<(), Refusal> {
        self.set(ATTACH, libc::F_RDLCK).map(|_| ())
    }

    /// Runs `adopt` while nobody else does so, in any process. Called once per lease.
    pub(crate) fn while_alone_in_boot(&self, adopt: impl FnOnce()) -> Result<(), Refusal> {
        self.wait(BOOT, libc::F_WRLCK, PATIENCE)?;
        adopt();
        self.set(BOOT, libc::F_UNLCK).map(|_| ())
    }

    /// Whether this process took the lease, and not a parent it was forked from.
    #[inline(always)]
    pub(crate) fn is_mine(&self) -> bool {
        self.fork == fork_number()
    }

    /// Whether the kernel knows nothing of it: then a forked child cannot have one beside it.
    pub(crate) fn is_local(&self) -> bool {
        self.local
    }

    /// The fork number of the process that took it.
    pub(crate) fn fork(&self) -> u64 {
        self.fork
    }

    /// Links to the file behind the lease; 0 once it has lost its name.
    pub(crate) fn links(&self) -> Result<u64, Refusal> {
        let fd = self.fd().ok_or(Errno::EBADF)?;
        Ok(fstat(fd)?.st_nlink as u64)
    }

    fn open(file: &File) -> Result<Self, Refusal> {
        watch_forks();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let lease = Lease::listed(file, false)?;
        // Another thread's fork between the opening and the listing leaves the child a copy that
        // its handler does not find; a lock on it would outlive this process. No lock is held yet,
        // so such a description is thrown away, and the child's copy of it means nothing.
        let start = Instant::now();
        loop {
            let calm = Calm::now();
            // A fork that does not return waits for this very thread, in another's fork handler.
            let late = start.elapsed() >= FORK_PATIENCE;
            if calm.is_some() || late {
                let fd = open(path.as_str(), OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
                lease.entry.fd.store(fd.into_raw_fd(), Ordering::SeqCst);
                if late || calm.is_some_and(Calm::lasted) {
                    return Ok(lease);
                }
                lease.entry.close(TAKEN);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// A lease of this process alone, with no lock and no descriptor.
    fn local(file: &File) -> Result<Self, Refusal> {
        watch_forks();
        let lease = Lease::listed(file, true)?;
        ANY_LOCAL.store(true, Ordering::Release);
        lease.entry.fd.store(LOCAL, Ordering::Release);
        Ok(lease)
    }

    fn listed(file: &File, local: bool) -> Result<Self, Refusal> {
        let stat = fstat(file)?;
        Ok(Lease { entry: Entry::take(stat.st_dev, stat.st_ino), fork: fork_number(), local })
    }

    /// Whether this process holds the seat, by any description of the same file.
    fn held_here(&self, seat: Seat) -> bool {
        entries().any(|entry| entry.holds(seat, self.entry.file()))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.entry.fd.load(Ordering::Acquire);
        // SAFETY: a number >= 0 in the entry is an open descriptor that only this `Lease` closes,
        // in `drop`, or the fork handler, which then stores -1; so it stays open for this borrow.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    fn set(&self, offset: i64, kind: i32) -> Result<bool, Refusal> {
        if self.local {
            return Ok(self.is_mine());
        }
        let fd = self.fd().ok_or(Errno::EBADF)?;
        match fcntl(fd, FcntlArg::F_OFD_SETLK(&lock_range(kind, offset, 1))) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Tries until `patience` is over. There is no event to wait for: the blocking form of the
    /// call has no time limit.
    fn wait(&self, offset: i64, kind: i32, patience: Duration) -> Result<(), Refusal> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(50);
        while !self.set(offset, kind)? {
            if start.elapsed() >= patience {
                return Err(Refusal::Held { by_this_process: false });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.entry.give_back();
    }
}

/// Whether anyone holds the seat. Works on any readable descriptor. Only a write lock counts:
/// whoever may read the file can take a read lock.
pub(crate) fn is_held(file: &File, seat: Seat) -> io::Result<bool> {
    if let Some(mut local) = local_entries(file)? {
        return Ok(local.any(|(entry, file)| entry.holds(seat, file)));
    }
    // Asking for a read lock: only a write lock is in its way.
    let mut lock = lock_range(libc::F_RDLCK, seat.offset(), 1);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}

/// Whether anyone is attached. Works on any readable descriptor; a read lock by a mere reader
/// looks the same as an attached writer.
pub(crate) fn is_attached(file: &File) -> io::Result<bool> {
    if local_entries(file)?.is_some() {
        return Ok(true);
    }
    let mut lock = lock_range(libc::F_WRLCK, ATTACH, 1);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}

/// Whether this process, or one it was forked from, has ever had a lease that the kernel knows
/// nothing of. A probe asks for every slot, and must not walk through all leases for each.
static ANY_LOCAL: AtomicBool = AtomicBool::new(false);

/// The leases on a file that the kernel knows nothing of; nothing if there are none.
fn local_entries(
    file: &File,
) -> io::Result<Option<impl Iterator<Item = (&'static Entry, (u64, u64))>>> {
    if !ANY_LOCAL.load(Ordering::Acquire) {
        return Ok(None); // As nearly always: no system call, and no walk through the list.
    }
    let local = |entry: &&Entry| entry.fd.load(Ordering::Acquire) == LOCAL;
    let stat = fstat(file)?;
    let file = (stat.st_dev, stat.st_ino);
    let mut of_file = entries().filter(local).filter(move |entry| entry.file() == file).peekable();
    let found = of_file.peek().is_some();
    Ok(found.then(|| of_file.map(move |entry| (entry, file))))
}

fn lock_range(kind: i32, start: i64, len: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: len,
        l_pid: 0, // asked for by the OFD commands
    }
}
