"""The end of a launch, told by its launcher.

vLLM's launcher kills its API servers right after asking them to stop (`--shutdown-timeout` is 0 by
default), and it outlives one that crashes. What they had counted since the last line is in the
region, so the launcher, which ends last, logs it and removes the region.
"""

from __future__ import annotations

import time
from logging import Logger
from pathlib import Path

from .. import Error, HeldError, Primary, Region
from .report import Reporter, Settings

#: How long the kernel may take to tear killed servers down.
PATIENCE = 5.0


def finish(path: Path, logger: Logger) -> None:
    """Logs the rest of a launch whose servers have all ended, and removes its region."""
    if not path.exists():
        return  # One server, or the last of several has done it.
    region = Region.open(path)
    primary = _primary_of_the_dead(region)
    if primary is None:
        region.close()
        return  # Servers live on without their launcher, and look after themselves.
    with primary:
        interval = primary.drain()
    settings = Settings.from_env(logger.warning)
    Reporter(region.schema, region.server_count, logger, settings, None, None).report_rest(interval)
    try:
        region.remove()
    except (Error, OSError):
        pass  # Somebody else has, or has it open: it is a leftover for the next launch.


def _primary_of_the_dead(region: Region) -> Primary | None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            primary = region.primary()
        except HeldError:
            pass
        else:
            if "alive" not in primary.probe():
                return primary
            primary.close()
        if time.monotonic() > deadline:
            return None
        time.sleep(0.01)
