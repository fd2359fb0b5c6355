"""A server in plain Python: docs/format.md and the standard library, and no package of ours.

    shmstats run -n 3 --on-exit ignore --schema examples/foreign/schema.toml -- \
        python3 examples/foreign/worker.py --grains 100000

`Slot` is the part to copy: it claims a slot, and counts, sets and publishes in it. It makes no
system call to count. Only for machines whose stores are seen in the order they were made (x86-64):
Python has no fences.
"""

import argparse
import fcntl
import mmap
import os
import signal
import stat
import struct
import sys
import time
import zlib

ATTACH, BOOT, SLOTS = 2**40, 2**40 + 2, 2**40 + 1024  # lease bytes
RESET_NUMBER, RESET_AT, BOOT_ID = 0, 1, 2  # words of the region block
DRAINED_AT = 5  # word of the primary block
COUNTER, GAUGE, SINGLE_WRITER = 1, 2, 2
SCOPE_SERVER, LIFETIME_OWNER = 1, 1
CLAIMED, RELEASED = 1, 2
NO_SNAPSHOT = 2**32 - 1
FORMS = {1: "=Q", 2: "=q", 3: "=d"}  # by value type


def check(ok, what):
    if not ok:
        sys.exit(f"worker: not a region of version 1: {what}")


def word_of(form, value):
    """A value as the 64-bit word that stands for it."""
    return struct.unpack("=Q", struct.pack(form, value))[0]


class Slot:
    """A claimed slot of a region. Its descriptor holds the leases until it is closed."""

    def __init__(self, path, slot):
        self.fd = self._attach(path, slot)
        self._read_head(path, slot)
        os.posix_fallocate(self.fd, 0, self._u64(24))
        # An element of this is one load or store of eight bytes.
        self.words = memoryview(mmap.mmap(self.fd, self._u64(24))).cast("Q")
        self._adopt_boot()
        self._claim(slot)

    def _attach(self, path, slot):
        while True:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            info = os.fstat(fd)
            check(stat.S_ISREG(info.st_mode), "expected a regular file")
            check(info.st_uid in (os.geteuid(), 0), "expected a file of this user or of root")
            self._lock(fd, fcntl.F_RDLCK, ATTACH)
            self._lock(fd, fcntl.F_WRLCK, SLOTS + slot)
            if os.fstat(fd).st_nlink == 1:
                return fd
            os.close(fd)  # removed between opening and locking

    @staticmethod
    def _lock(fd, kind, byte):
        flock = struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, 1, 0)
        deadline = time.monotonic() + 0.5
        while True:
            try:
                return fcntl.fcntl(fd, fcntl.F_OFD_SETLK, flock)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    sys.exit("worker: the slot is held by another process")
                time.sleep(0.005)

    def _u32(self, at):
        return struct.unpack_from("=I", self.head, at)[0]

    def _u64(self, at):
        return struct.unpack_from("=Q", self.head, at)[0]

    def _text(self, at):
        start, length = self._u64(64) + self._u32(at), self._u32(at + 4)
        return self.head[start : start + length]

    def _labels(self, at):
        data, pairs = self._text(at), []
        while data:
            pair = []
            for _ in range(2):
                length = struct.unpack_from("=H", data)[0]
                pair.append(data[2 : 2 + length].decode())
                data = data[2 + length :]
            pairs.append(tuple(pair))
        return frozenset(pairs)

    def _read_head(self, path, slot):
        self.head = os.pread(self.fd, 256, 0)
        check(self.head[:8] == b"shmstats", "magic")
        check(self._u64(16) == 0x0102030405060708, "byte_order")
        check(self._u32(8) == 1, "version")
        check(self._u32(252) == zlib.crc32(self.head[:252]), "checksum")
        check(self._u64(24) == os.fstat(self.fd).st_size, "file_size")
        check(slot < self._u32(108), "slot_count")
        self.head = os.pread(self.fd, self._u64(72), 0)
        tables = self.head[self._u64(48) : self._u64(64) + self._u32(104)]
        check(self._u32(192) == zlib.crc32(tables), "schema_hash")
        self.region, self.primary = self._u64(32) // 8, self._u64(40) // 8
        self.base = (self._u64(72) + slot * self._u64(80)) // 8
        entry = lambda first, size, n: self._u64(first) + size * n
        self.records, self.snapshots = {}, {}
        for at in [entry(48, 96, n) for n in range(self._u32(92))]:
            self.records[self._text(at + 24).decode(), self._labels(at + 48)] = at
        for at in [entry(56, 64, n) for n in range(self._u32(100))]:
            self.snapshots[self._text(at + 24).decode(), self._labels(at + 32)] = at

    def _word(self, at):
        """Where in the map the word is whose offset in a slot stands at `at` of the head."""
        return self.base + self._u32(at) // 8

    def _adopt_boot(self):
        with open("/proc/sys/kernel/random/boot_id") as boot_id:
            this_boot = int(boot_id.read().replace("-", "")[:16], 16) | 1
        words, region = self.words, self.region
        if words[region + BOOT_ID] == this_boot:
            return
        self._lock(self.fd, fcntl.F_WRLCK, BOOT)
        if words[region + BOOT_ID] != this_boot:  # nobody was faster
            words[region + RESET_NUMBER] += 1
            words[region + RESET_AT] = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            words[self.primary + DRAINED_AT] = 0
            words[region + BOOT_ID] = this_boot
        self._lock(self.fd, fcntl.F_UNLCK, BOOT)

    def _claim(self, slot):
        words, base = self.words, self.base
        words[base] |= 1
        for at in self.records.values():
            lone_gauge = self.head[at] == GAUGE and self._u32(at + 20) == NO_SNAPSHOT
            if lone_gauge and self.head[at + 4] == LIFETIME_OWNER:
                words[self._word(at + 16)] = 0
                words[self._word(at + 12)] = 0
        for at in self.snapshots.values():
            if (self.head[at], self.head[at + 1]) == (SCOPE_SERVER, LIFETIME_OWNER):
                self._write(self._word(at + 4), 0, 0, 0, [])
        with open("/proc/self/stat") as proc:
            start_time = int(proc.read().rpartition(")")[2].split()[19])
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        for n, value in enumerate([os.getpid(), start_time, now, now, CLAIMED, slot]):
            words[base + 1 + n] = value
        words[base] += 1

    def _write(self, at, reset, published, present, values):
        words = self.words
        words[at] |= 1
        for n, value in enumerate([reset, published, present, *values]):
            words[at + 1 + n] = value
        words[at] += 1

    def counter(self, name, **labels):
        """A function that adds to a single-writer counter. Call it from one thread."""
        at = self.records[name, frozenset(labels.items())]
        check((self.head[at], self.head[at + 1]) == (COUNTER, SINGLE_WRITER), f"{name}: kind")
        words, cell = self.words, self._word(at + 12)

        def add(n=1):
            words[cell] += n

        return add

    def gauge(self, name, **labels):
        """A function that sets a gauge that stands alone."""
        at = self.records[name, frozenset(labels.items())]
        check(self.head[at] == GAUGE and self._u32(at + 20) == NO_SNAPSHOT, f"{name}: kind")
        words, value, mark = self.words, self._word(at + 12), self._word(at + 16)
        form, region = FORMS[self.head[at + 1]], self.region

        def set_to(x):
            words[value] = word_of(form, x)
            words[mark] = words[region + RESET_NUMBER] + 1

        return set_to

    def snapshot(self, name, **labels):
        """A function that publishes all gauges of a snapshot together, by name."""
        at = self.snapshots[name, frozenset(labels.items())]
        first, count = self._u32(at + 8), self._u32(at + 12)
        entries = [self._u64(48) + 96 * n for n in range(first, first + count)]
        fields = [(self._text(e + 24).decode(), FORMS[self.head[e + 1]]) for e in entries]
        where, region = self._word(at + 4), self.region

        def publish(**gauges):
            now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            present = sum(1 << n for n, (key, _) in enumerate(fields) if key in gauges)
            values = [word_of(form, gauges.get(key, 0)) for key, form in fields]
            self._write(where, self.words[region + RESET_NUMBER], now, present, values)

        return publish

    def release(self):
        """Gives the slot back. A worker that is killed needs no such thing."""
        self.words[self.base + 5] = RELEASED
        os.close(self.fd)


def main():
    parser = argparse.ArgumentParser(description="A worker that counts in a region.")
    parser.add_argument("--grains", type=int, default=0, help="how many to grind; 0: until told to end")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    slot = Slot(os.environ["SHMSTATS_REGION"], int(os.environ["SHMSTATS_SERVER_INDEX"]))
    grains, flour = slot.counter("grains"), slot.counter("flour")
    large, small = slot.counter("sacks", size="large"), slot.counter("sacks", size="small")
    speed, stone = slot.gauge("speed"), slot.snapshot("stone", stone="0")
    try:
        speed(0.5)
        n = 0
        while options.grains == 0 or n < options.grains:
            n += 1
            grains()
            flour(3)
            if n % 1000 == 0:
                (large if n % 2000 == 0 else small)()
                stone(warmth=20 + n / 1e6, turns=n)
            if n == 1:
                print("counting", flush=True)
    finally:
        slot.release()


if __name__ == "__main__":
    main()
