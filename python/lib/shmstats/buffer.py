"""`SharedStatsBuffer`: counters and gauges of several servers, recorded and read by any process."""

from __future__ import annotations

import itertools
import os
import weakref
from typing import Any

from ._shmstats import Buffer, default_path
from .leftovers import remove_leftovers

_PREFIX = "stats-buffer-"
_numbers = itertools.count()
_buffers: weakref.WeakSet[SharedStatsBuffer] = weakref.WeakSet()


def _new_path() -> str:
    while True:
        name = f"{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}-{next(_numbers)}"
        path = default_path(name)
        if not path.exists():
            return str(path)


class SharedStatsBuffer(Buffer):
    """Counts and gauges of `num_servers` servers in shared memory, without a lock.

    Any process may `record` for any index and any process may aggregate. Hand it to a
    `multiprocessing.Process` as an argument, whatever the start method; keep it in the parent until
    the child has begun. The file is removed when the last process lets go of it.
    """

    def __new__(cls, num_servers: int, *, path: str | os.PathLike[str] | None = None) -> Any:
        if path is None:
            remove_leftovers(_PREFIX)
            path = _new_path()
        return cls._make(path, num_servers, True)

    @classmethod
    def _make(cls, path: str | os.PathLike[str], num_servers: int, create: bool) -> Any:
        self = super().__new__(cls, path, num_servers, create)
        _buffers.add(self)
        _close_at_exit(self)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self)._make, (self.path, self.num_servers, False))

    def __enter__(self) -> SharedStatsBuffer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SharedStatsBuffer of {self.num_servers} servers>"


def _close(reference: weakref.ref[SharedStatsBuffer]) -> None:
    if (buffer := reference()) is not None:
        buffer.close()


def _close_at_exit(buffer: SharedStatsBuffer) -> None:
    from multiprocessing import util

    # Below 0: after children have been joined, which may still record. `atexit` would come before
    # that, and not at all in children of `multiprocessing`.
    util.Finalize(buffer, _close, args=(weakref.ref(buffer),), exitpriority=-100)
    # Children of `multiprocessing` begin with an empty list of what to do at exit.
    util.register_after_fork(buffer, _close_at_exit)


def _after_fork() -> None:
    for buffer in list(_buffers):
        buffer._attach()


os.register_at_fork(after_in_child=_after_fork)
