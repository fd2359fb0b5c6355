//! The process-wide list of the leases' descriptors, which a fork handler can walk.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, RawFd};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::stat::fstat;

use super::{Seat, lock_range};
use crate::sync::{AtomicI32, AtomicI64, AtomicPtr, AtomicU64, Ordering};

/// One descriptor of the process-wide list. Entries are reused and never freed.
#[derive(Debug)]
pub(super) struct Entry {
    /// `FREE`, `TAKEN` (no descriptor yet), `LOCAL` (none at all) or the descriptor.
    pub(super) fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    /// The offset of the seat held; 0 for none.
    pub(super) seat: AtomicI64,
    next: AtomicPtr<Entry>,
}

pub(super) const FREE: RawFd = -1;
pub(super) const TAKEN: RawFd = -2;
/// A lease that the kernel knows nothing of: this list alone keeps two holders apart.
pub(super) const LOCAL: RawFd = -3;

static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(std::ptr::null_mut());

pub(super) fn entries() -> impl Iterator<Item = &'static Entry> {
    let follow = |pointer: *mut Entry| {
        // SAFETY: the list's pointers are null or come from `Box::leak` in `Entry::take`, and
        // entries are never freed nor borrowed mutably.
        unsafe { pointer.as_ref() }
    };
    std::iter::successors(follow(ENTRIES.load(Ordering::Acquire)), move |entry| {
        follow(entry.next.load(Ordering::Acquire))
    })
}

impl Entry {
    pub(super) fn take(device: u64, inode: u64) -> &'static Entry {
        let free = |entry: &&Entry| {
            entry.fd.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let entry = entries().find(free).unwrap_or_else(|| {
            let entry: &'static Entry = Box::leak(Box::new(Entry {
                fd: AtomicI32::new(TAKEN),
                device: AtomicU64::new(0),
                inode: AtomicU64::new(0),
                seat: AtomicI64::new(0),
                next: AtomicPtr::new(std::ptr::null_mut()),
            }));
            let pointer = std::ptr::from_ref(entry).cast_mut();
            // Release: pairs with the Acquire in `entries`; whoever finds the entry finds it whole.
            let mut head = ENTRIES.load(Ordering::Relaxed);
            loop {
                entry.next.store(head, Ordering::Relaxed);
                let link = ENTRIES.compare_exchange_weak(
                    head,
                    pointer,
                    Ordering::Release,
                    Ordering::Relaxed,
                );
                match link {
                    Ok(_) => break entry,
                    Err(now) => head = now,
                }
            }
        });
        entry.device.store(device, Ordering::Relaxed);
        entry.inode.store(inode, Ordering::Relaxed);
        entry
    }

    pub(super) fn file(&self) -> (u64, u64) {
        (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed))
    }

    /// Whether this descriptor has the seat, or is about to, of the file of this device and inode.
    pub(super) fn holds(&self, seat: Seat, file: (u64, u64)) -> bool {
        let fd = self.fd.load(Ordering::Acquire);
        (fd >= 0 || fd == LOCAL)
            && self.seat.load(Ordering::Acquire) == seat.offset()
            && self.file() == file
    }

    /// Closes the descriptor, unless the fork handler has, and frees the entry.
    pub(super) fn give_back(&self) {
        self.seat.store(0, Ordering::Release);
        self.close(FREE);
    }

    /// Unlocks and closes the descriptor, if there is one, and leaves `mark` in its place.
    pub(super) fn close(&self, mark: RawFd) {
        let fd = self.fd.load(Ordering::Acquire);
        let ours = fd >= 0 && self.is_open(fd);
        if ours {
            // SAFETY: only the one `Lease` of this entry closes a number >= 0, here and below.
            let open = unsafe { BorrowedFd::borrow_raw(fd) };
            // Unlocked by name, since closing is not enough: a child forked between the next two
            // statements has a copy that is listed no more. A length of 0: to the end.
            let _ = fcntl(open, FcntlArg::F_OFD_SETLK(&lock_range(libc::F_UNLCK, 0, 0)));
        }
        self.fd.store(mark, Ordering::Release);
        if ours {
            // Errors of close(2) say nothing that could be acted on; the descriptor is gone.
            let _ = nix::unistd::close(fd);
        }
    }

    /// Whether the number still stands for the file. A program that closes all descriptors, to
    /// become a daemon say, has closed this one as well, and may have another under its number.
    pub(super) fn is_open(&self, fd: RawFd) -> bool {
        // SAFETY: the number is only asked about; whether it is open is the question.
        let asked = unsafe { BorrowedFd::borrow_raw(fd) };
        fstat(asked).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.file())
    }
}
