"""vLLM's stats lines from an interval: its parts, order and formats. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from .. import Interval
from .fields import KV_FETCH_STAGES, KV_USAGE, POSITIONS, Style

#: A message and its arguments, for a logger.
Line = tuple[str, list[Any]]


class HitWindow:
    """The hit rate of the last 1000 requests of all servers, as vLLM's `CachingMetrics`.

    There, a step is what one engine step looked up; here, it is an interval. As there, the newest
    step counts whole, however many requests it had.
    """

    def __init__(self, requests: int = 1000) -> None:
        self._most = requests
        self._steps: deque[tuple[int, int, int]] = deque()
        #: Requests, queries and hits.
        self.sums = (0, 0, 0)

    def observe(self, requests: int, queries: int, hits: int, resets: int = 0) -> None:
        if resets:
            # What came before the reset and what came after cannot be told apart in here.
            self._steps.clear()
            self.sums = (0, 0, 0)
        elif requests:
            self._move((requests, queries, hits), 1)
            self._steps.append((requests, queries, hits))
            while len(self._steps) > 1 and self.sums[0] > self._most:
                self._move(self._steps.popleft(), -1)

    def _move(self, step: tuple[int, int, int], sign: int) -> None:
        a, b, c = self.sums
        self.sums = (a + sign * step[0], b + sign * step[1], c + sign * step[2])

    @property
    def rate(self) -> float | None:
        """0 to 1, or None before the first request."""
        requests, queries, hits = self.sums
        if requests == 0:
            return None
        return min(hits / queries, 1.0) if queries else 0.0


@dataclass
class Windows:
    """The hit rates of one line."""

    prefix: HitWindow = field(default_factory=HitWindow)
    external: HitWindow = field(default_factory=HitWindow)
    mm: HitWindow = field(default_factory=HitWindow)

    def items(self, line: str) -> list[tuple[str, HitWindow]]:
        """Each with its name; a single engine has no multi-modal cache."""
        both = [("prefix", self.prefix), ("external", self.external)]
        return [*both, ("mm", self.mm)] if line == "all" else both


class View:
    """An interval of one engine, or of all."""

    def __init__(self, interval: Interval, engines: Iterable[int], engine: int | None = None):
        self._interval = interval
        self._engines = [str(one) for one in ([engine] if engine is not None else engines)]
        self._labels = None if engine is None else {"engine": str(engine)}
        self.elapsed = interval.elapsed

    def delta(self, name: str) -> int:
        return self._interval.delta(name, self._labels)

    def delta_of_all(self, name: str) -> int:
        """Of a counter that no engine has."""
        return self._interval.delta(name)

    def position(self, place: int) -> int:
        labels = [{"engine": engine, "position": str(place)} for engine in self._engines]
        return sum(self._interval.delta(POSITIONS, one) for one in labels)

    def rate(self, name: str) -> float:
        return self.delta(name) / self.elapsed if self.elapsed > 0 else 0.0

    def _values(self, name: str) -> list[float]:
        # An engine that never reported has never run anything: 0, as vLLM has it.
        values = [self._interval.gauge(name, {"engine": one}) for one in self._engines]
        return [0.0 if value is None else value for value in values]

    def total(self, name: str) -> int:
        return int(sum(self._values(name)))

    def mean(self, name: str) -> float:
        values = self._values(name)
        return sum(values) / len(values) if values else 0.0


def observe(view: View, windows: Windows, *, with_mm: bool) -> None:
    """Lets the hit rates of a line take in an interval."""
    for window, name in (
        (windows.prefix, "prefix_cache"),
        (windows.external, "external_prefix_cache"),
    ):
        parts = ("requests", "queries", "hits", "resets")
        window.observe(*(view.delta(f"{name}_{part}") for part in parts))
    if with_mm:
        parts = ("requests", "queries", "hits", "resets")
        windows.mm.observe(*(view.delta_of_all(f"mm_cache_{part}") for part in parts))


def stats_line(prefix: str, view: View, windows: Windows, style: Style) -> Line:
    """The line that vLLM itself would print for one server, in its order and format."""
    parts: list[str] = []
    args: list[Any] = []

    def part(text: str, *values: Any, needs: Iterable[str] = ()) -> None:
        if style.missing.isdisjoint(needs):
            parts.append(text)
            args.extend(values)

    rate, total = view.rate, view.total
    part(
        "Avg prompt throughput: %.1f tokens/s",
        rate("prompt_tokens_computed"),
        needs=["prompt_token_stats"],
    )
    part(
        "Avg generation throughput: %.1f tokens/s",
        rate("generation_tokens"),
        needs=["num_generation_tokens"],
    )
    part("Running: %d reqs", total("running_requests"), needs=["num_running_reqs"])
    deferred = total("deferred_requests")
    waiting = total("waiting_requests") + deferred
    part("Waiting: %d reqs", waiting, needs=["num_waiting_reqs"])
    if deferred > 0:
        part("Deferred: %d reqs", deferred)
    kv_fetch = [total(f"kv_fetch_{stage}") for stage in KV_FETCH_STAGES]
    if any(kv_fetch):
        part("KV fetch: %d waiting to start, %d in progress, %d completed waiting", *kv_fetch)
    if preemptions := view.delta("preemptions"):
        part("Preemptions: %d", preemptions)
    usage = view.mean(KV_USAGE) * 100
    part("%s KV cache usage: %.1f%%", style.device, usage, needs=["kv_cache_usage"])
    if (hits := windows.prefix.rate) is not None:
        part("Prefix cache hit rate: %.1f%%", hits * 100, needs=["prefix_cache_stats"])
    if style.corrupted:
        corrupted = view.delta("corrupted_requests")
        part("Corrupted: %d reqs", corrupted, needs=["num_corrupted_reqs"])
    if (hits := windows.external.rate) is not None:
        part("External prefix cache hit rate: %.1f%%", hits * 100, needs=["prefix_cache_stats"])
    if (hits := windows.mm.rate) is not None:
        part("MM cache hit rate: %.1f%%", hits * 100)
    return prefix + ", ".join(parts), args


def spec_decoding_line(view: View, style: Style) -> Line | None:
    """vLLM's line about speculative decoding, or None if nothing was drafted."""
    drafts = view.delta("spec_decode_drafts")
    if drafts == 0:
        return None
    drafted = view.delta("spec_decode_draft_tokens")
    accepted = view.delta("spec_decode_accepted_tokens")
    accepted_rate = view.rate("spec_decode_accepted_tokens")
    if style.is_diffusion:
        return (
            "DiffusionDecoding metrics: "
            "Committed token throughput: %.2f tokens/s, "
            "Mean denoising steps per canvas: %.2f, "
            "Mean tokens committed per denoising step: %.2f, "
            "Committed: %d tokens, "
            "Denoising steps: %d, "
            "Canvas positions evaluated: %d",
            [
                accepted_rate,
                drafted / accepted if accepted else float("nan"),
                accepted / drafts,
                accepted,
                drafts,
                drafted,
            ],
        )
    positions = ", ".join(f"{view.position(i) / drafts:.3f}" for i in range(style.positions))
    return (
        "SpecDecoding metrics: "
        "Mean acceptance length: %.2f, "
        "Accepted throughput: %.2f tokens/s, "
        "Drafted throughput: %.2f tokens/s, "
        "Accepted: %d tokens, "
        "Drafted: %d tokens, "
        "Per-position acceptance rate: %s, "
        "Avg Draft acceptance rate: %.1f%%",
        [
            1 + accepted / drafts,
            accepted_rate,
            view.rate("spec_decode_draft_tokens"),
            accepted,
            drafted,
            positions,
            accepted / drafted * 100 if drafted else float("nan"),
        ],
    )


class IdleWatch:
    """Whether a line is worth INFO: not once this and the last interval saw no tokens."""

    def __init__(self) -> None:
        self._was_busy = False

    def level(
        self, view: View, info: Callable[..., None], debug: Callable[..., None]
    ) -> Callable[..., None]:
        busy = bool(view.delta("prompt_tokens_computed") or view.delta("generation_tokens"))
        log = info if busy or self._was_busy else debug
        self._was_busy = busy
        return log
