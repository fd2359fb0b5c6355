"""Which launch of vLLM a process belongs to, and where that launch's region is.

A launch is its launcher: the process that spawns the API servers, known by pid, start time and PID
namespace, which together no other process ever shares.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
from dataclasses import dataclass
from pathlib import Path

from .. import default_path, remove_leftovers

#: Set in the launcher for its children: where their region will be. Only an API server makes it.
VARIABLE = "SHMSTATS_VLLM_REGION"
#: What the names of our regions begin with.
PREFIX = "vllm-"


def is_switched_off() -> bool:
    return os.environ.get("SHMSTATS_VLLM", "1").strip().lower() in ("0", "off", "false", "no")


def uses_rust_front_end() -> bool:
    return os.environ.get("VLLM_USE_RUST_FRONTEND", "0").strip().lower() in ("1", "true")


@dataclass(frozen=True)
class Launcher:
    """A process, named for good."""

    pid: int
    start_time: int
    namespace: int

    @classmethod
    def of(cls, pid: int) -> Launcher:
        stat = Path(f"/proc/{pid}/stat").read_text()
        # The second field is the program's name in parentheses and may hold anything.
        start_time = int(stat.rpartition(")")[2].split()[19])
        return cls(pid, start_time, os.stat("/proc/self/ns/pid").st_ino)

    def __str__(self) -> str:
        return f"{self.pid}-{self.start_time}-{self.namespace}"

    def region(self) -> Path:
        return default_path(f"{PREFIX}{self}")


def region_of_this_server() -> Path:
    """Where the region of this API server's launch is.

    The variable counts only if it was set by this server's own launcher: one that was inherited
    from a launch around this one names another region.
    """
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None:
        raise RuntimeError("this API server was not spawned by vLLM's launcher")
    launcher = Launcher.of(parent.pid)
    owner, _, path = os.environ.get(VARIABLE, "").partition(":")
    return Path(path) if owner == str(launcher) and path else launcher.region()


def remove_dead_launches() -> None:
    """Removes regions whose servers and launcher were all killed."""
    remove_leftovers(PREFIX, keep=_has_launcher)


def _has_launcher(path: Path) -> bool:
    """Whether the launcher lives: it removes the region itself, after it has told the rest."""
    try:
        pid, start_time, namespace = map(int, path.stem.removeprefix(PREFIX).split("-"))
        return Launcher.of(pid) == Launcher(pid, start_time, namespace)
    except (ValueError, OSError):
        return False


def name_region() -> None:
    """vLLM's general plugin: runs in the launcher before it spawns, and in everything it spawns.

    Names the region and makes nothing. Never raises: this is somebody else's start.
    """
    try:
        if is_switched_off() or multiprocessing.parent_process() is not None:
            return
        launcher = Launcher.of(os.getpid())
        os.environ[VARIABLE] = f"{launcher}:{launcher.region()}"
        if uses_rust_front_end():
            from vllm.logger import init_logger

            init_logger("vllm.shmstats").info(
                "shmstats has nothing to do: with VLLM_USE_RUST_FRONTEND=1 there is one API "
                "server, which is not Python"
            )
            return
        atexit.register(_finish, os.getpid(), launcher.region())
    except Exception:
        pass


def _finish(launcher: int, region: Path) -> None:
    """In the launcher, at its end; not in a child that was forked from it."""
    try:
        if os.getpid() != launcher or not region.exists():
            return
        from vllm.logger import init_logger

        from .finish import finish

        finish(region, init_logger("vllm.shmstats"))
    except BaseException:
        pass
