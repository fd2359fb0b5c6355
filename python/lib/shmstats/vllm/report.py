"""What a primary makes of its intervals: lines for people, JSON for programs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from logging import Logger

from .. import Interval, Schema, Server
from .fields import WINDOW, Style, engines_of, window_labels
from .lines import IdleWatch, Line, View, Windows, observe, spec_decoding_line, stats_line


@dataclass(frozen=True)
class Settings:
    """What an operator may choose in the environment."""

    #: `all`: a line for all servers. `engines`: a line per engine, over all servers. `both`.
    lines: str = "all"
    #: A file that each interval is appended to, as a line of JSON.
    json: str | None = None
    #: Whether to time `record` and say so at each tick.
    timing: bool = False

    @classmethod
    def from_env(cls, warn: Callable[..., None]) -> Settings:
        lines = os.environ.get("SHMSTATS_VLLM_LINES", "all").strip().lower()
        if lines not in ("all", "engines", "both"):
            warn("SHMSTATS_VLLM_LINES: expected all, engines or both, found %r", lines)
            lines = "all"
        json = os.environ.get("SHMSTATS_VLLM_JSON") or None
        timing = os.environ.get("SHMSTATS_VLLM_TIMING", "0") not in ("", "0")
        return cls(lines, json, timing)


class _Subject:
    """What a line is about, `all` or one engine, with what is remembered between its lines."""

    def __init__(self, engine: int | None, server: Server | None) -> None:
        self.engine = engine
        self.name = "all" if engine is None else str(engine)
        self.windows = Windows()
        self.idle = IdleWatch()
        self._publish = {}
        if server is not None:
            for cache, _ in self.windows.items(self.name):
                labels = window_labels(cache, self.name)
                self._publish[cache] = server.snapshot("hit_window", labels).publish

    def inherit(self, interval: Interval) -> None:
        """Goes on with the hit rates of the primary before this one: as one step, whole."""
        for cache, window in self.windows.items(self.name):
            labels = window_labels(cache, self.name)
            sums = [interval.gauge(name, labels) for name in WINDOW]
            window.observe(*(int(value or 0) for value in sums))

    def hand_down(self) -> None:
        for cache, window in self.windows.items(self.name):
            if publish := self._publish.get(cache):
                publish(**dict(zip(WINDOW, window.sums)))


class Reporter:
    """Logs intervals for all servers. Without a server of its own it can only be the last."""

    def __init__(
        self,
        schema: Schema,
        count: int,
        logger: Logger,
        settings: Settings,
        rank: int | None,
        server: Server | None,
    ) -> None:
        self._count, self._logger, self._settings, self._rank = count, logger, settings, rank
        self._engines = engines_of(schema)
        self._style = Style.of(schema)
        lines = settings.lines
        self._whole = _Subject(None, server)
        self._single = [_Subject(engine, server) for engine in self._engines if lines != "all"]
        self._is_new = True

    def report(self, interval: Interval) -> None:
        """Takes an interval into the hit rates and logs it."""
        subjects = [self._whole, *self._single]
        if self._is_new:
            self._is_new = False
            for subject in subjects:
                subject.inherit(interval)
        said: list[str] = []
        for subject in subjects:
            view = View(interval, self._engines, subject.engine)
            observe(view, subject.windows, with_mm=subject.engine is None)
            log = subject.idle.level(view, self._logger.info, self._logger.debug)
            if subject is self._whole:
                log_of_whole, whole = log, view
                if self._settings.lines == "engines":
                    continue
                prefix = self._prefix(interval)
            else:
                prefix = f"Engine {subject.engine:03d}: "
            said.append(_say(log, stats_line(prefix, view, subject.windows, self._style)))
        if line := spec_decoding_line(whole, self._style):
            said.append(_say(log_of_whole, line))
        for subject in subjects:
            subject.hand_down()
        if self._settings.json:
            self._write_json(self._settings.json, interval, said)

    def report_rest(self, interval: Interval) -> None:
        """At the end: logs what came since the last line, if anything did."""
        if not interval.is_idle:
            self.report(interval)

    def _prefix(self, interval: Interval) -> str:
        # At the end, told by the launcher, all are.
        dead = interval.states.count("dead") if self._rank is not None else 0
        return f"All {self._count} API Servers{f' ({dead} dead)' if dead else ''}: "

    def _write_json(self, path: str, interval: Interval, lines: list[str]) -> None:
        row = {
            "time": time.time(),
            "pid": os.getpid(),
            "rank": self._rank,
            "interval": interval.number,
            "elapsed": interval.elapsed,
            "states": interval.states,
            "deltas": {name: n for name, n in interval.deltas.items() if n},
            "gauges": interval.gauges,
            "lines": lines,
        }
        # One write of one line to a file opened for appending: whole, whoever else writes.
        with open(path, "a") as file:
            file.write(json.dumps(row) + "\n")


def _say(log: Callable[..., None], line: Line) -> str:
    log(line[0], *line[1])
    return line[0] % tuple(line[1])
