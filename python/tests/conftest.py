from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import shmstats


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch):
    """Where regions go: a folder of the test's own, in memory."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="shmstats-test-", dir=base) as name:
        monkeypatch.setenv("SHMSTATS_DIR", name)
        yield Path(name)


@pytest.fixture
def schema() -> shmstats.Schema:
    return shmstats.Schema(
        "web",
        shmstats.CounterDef("requests", labels={"status": ["ok", "failed"]}, help="Answered"),
        shmstats.CounterDef("bytes_sent", unit="bytes", single_writer=True),
        shmstats.GaugeDef("in_flight", type="i64"),
        shmstats.GaugeDef("load", type="f64", rollup="mean"),
        shmstats.GaugeDef("workers"),
        shmstats.SnapshotDef(
            "engine",
            shmstats.GaugeDef("running"),
            shmstats.GaugeDef("usage", type="f64", rollup="mean"),
            shared=True,
            labels={"engine": "0"},
        ),
    )


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in another interpreter."""
    command = [sys.executable, "-c", code, *arguments]
    env = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)


def in_child(work: Callable[[], None]) -> int:
    """Runs `work` in a forked child, and returns its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
