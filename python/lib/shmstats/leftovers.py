"""Regions whose processes were all killed: nobody was left to remove the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ._errors import Error
from ._shmstats import Region, default_path


def remove_leftovers(prefix: str, *, keep: Callable[[Path], bool] | None = None) -> list[Path]:
    """Removes the regions `PREFIX*.shmstats` in the default folder that no process is attached to.

    Safe at any time: the attach lease says who is alive. Regions of other users, and those that
    `keep` says so of, are left alone.
    """
    folder = default_path("x").parent
    removed = []
    for path in sorted(folder.glob(f"{prefix}*.shmstats")):
        if keep is not None and keep(path):
            continue
        try:
            Region.open(path).remove()
        except (Error, OSError):
            continue  # In use, not ours, no region, or somebody else was faster.
        removed.append(path)
    return removed
