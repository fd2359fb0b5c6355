"""One API server's part in its launch's stats: it records, and if it is primary it logs for all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from logging import Logger
from pathlib import Path
from typing import Any

from .. import Error, HeldError, Primary, Region, __version__
from .fields import Recorders, Style, schema
from .launch import remove_dead_launches
from .report import Reporter, Settings

#: How long a server that stops waits to be primary, while another one is just finishing.
LAST_DRAIN_PATIENCE = 0.5


class ServerStats:
    """Records for one of `count` API servers, and logs for all of them while it is primary."""

    def __init__(
        self,
        path: Path,
        *,
        rank: int,
        count: int,
        engines: Sequence[int],
        logger: Logger,
        style: Style = Style(),
        settings: Settings = Settings(),
    ) -> None:
        self._rank, self._logger = rank, logger
        if rank == 0:
            remove_dead_launches()
        layout = schema(engines, style)
        self._region = Region.open_or_create(path, layout, count)
        self._server = self._region.claim_preferring(rank)
        recorders = Recorders(self._server, engines, style)
        self._engines, self._mm = recorders.engines, recorders.mm
        self._reporter = Reporter(layout, count, logger, settings, rank, self._server)
        self._primary: Primary | None = None
        self._ticks = 0
        self._said: set[str] = set()
        if rank == 0:
            self._lead()
            self._say_hello(path, count, len(engines))

    def _say_hello(self, path: Path, servers: int, engines: int) -> None:
        self._logger.info(
            "shmstats %s: one stats line for all %d API servers and %d engine%s follows; ignore "
            '"disabling stats logging to avoid incomplete stats". To look inside: shmstats top %s',
            __version__,
            servers,
            engines,
            "" if engines == 1 else "s",
            path,
        )

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_stats: Any,
        engine: int,
        at: int | None = None,
    ) -> bool:
        """Takes in what one engine message brought, of the time `at` by the engine's clock. Whether
        some of it is for lines of our own."""
        recorders = self._engines.get(engine)
        if recorders is None:
            self.say_once("engine", "stats of an unknown engine %s are left out", engine)
            return False
        if mm_stats is not None:
            self._mm(mm_stats)
        if iteration_stats is not None:
            recorders[1](iteration_stats)
        return scheduler_stats is not None and recorders[0](scheduler_stats, at)

    def say_once(self, key: str, message: str, *args: Any) -> None:
        if key not in self._said:
            self._said.add(key)
            self._logger.warning("shmstats: " + message, *args)

    def tick(self) -> None:
        """At vLLM's logging interval: logs for all, if this server is primary or can become it."""
        self._ticks += 1
        self._server.heartbeat()
        # In the first interval only rank 0 tries, so that it is the one in quiet times.
        if self._primary is None and (self._rank == 0 or self._ticks > 1):
            self._lead()
        if self._primary is not None:
            self._primary.probe()
            self._reporter.report(self._primary.drain())

    def _lead(self) -> bool:
        try:
            self._primary = self._region.primary()
        except HeldError:
            return False
        return True

    @property
    def is_primary(self) -> bool:
        return self._primary is not None

    def close(self) -> None:
        """Logs what is still pending, if no other server will, and leaves; the last one out
        removes the region."""
        deadline = time.monotonic() + LAST_DRAIN_PATIENCE
        while self._primary is None and not self._lead() and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._primary is not None:
            self._primary.probe()
            self._reporter.report_rest(self._primary.drain())
            self._primary.close()
            self._primary = None
        self._server.close()
        try:
            self._region.remove()
        except (Error, OSError):
            pass  # Others are still at it, or the file is gone already.
