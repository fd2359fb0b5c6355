"""bench.py [SECONDS]: what counting costs, as ratios to the same with locks, measured in one run.

- `SharedStatsBuffer.record` with six fields, against an equal class on `multiprocessing.Array`s
  under one `Lock`: alone, and two processes at full speed.
- `Counter.add(1)`, against `prometheus_client`'s counter in its multi-process mode.

Needs prometheus_client. Each figure is the least of several rounds: what else the machine does can
only add to it. Two processes need two processors that are otherwise idle, or their times grow with
what else runs; their ratio less so.
"""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 0.5
ROUNDS = 5
FORK = multiprocessing.get_context("fork")

# Before prometheus_client is imported: it looks once.
os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="shmstats-bench-")
atexit.register(shutil.rmtree, os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)

import prometheus_client  # noqa: E402
import shmstats  # noqa: E402


class LockedStatsBuffer:
    """The same duties with what `multiprocessing` offers, as fast as it can be written plainly."""

    def __init__(self, num_servers: int) -> None:
        self.lock = FORK.Lock()
        self.prompt_tokens = FORK.Array("L", num_servers)
        self.generation_tokens = FORK.Array("L", num_servers)
        self.preemptions = FORK.Array("L", num_servers)
        self.corrupted_reqs = FORK.Array("L", num_servers)
        self.running_reqs = FORK.Array("L", num_servers)
        self.waiting_reqs = FORK.Array("L", num_servers)
        self.kv_cache_usage = FORK.Array("d", num_servers)
        self.cpu_cache_usage = FORK.Array("d", num_servers)

    def record(
        self,
        server_idx: int,
        prompt_tokens: int = 0,
        generation_tokens: int = 0,
        preemptions: int = 0,
        corrupted_reqs: int = 0,
        running_reqs: int | None = None,
        waiting_reqs: int | None = None,
        kv_cache_usage: float | None = None,
        cpu_cache_usage: float | None = None,
    ) -> None:
        with self.lock:
            if prompt_tokens:
                self.prompt_tokens[server_idx] += prompt_tokens
            if generation_tokens:
                self.generation_tokens[server_idx] += generation_tokens
            if preemptions:
                self.preemptions[server_idx] += preemptions
            if corrupted_reqs:
                self.corrupted_reqs[server_idx] += corrupted_reqs
            if running_reqs is not None:
                self.running_reqs[server_idx] = running_reqs
            if waiting_reqs is not None:
                self.waiting_reqs[server_idx] = waiting_reqs
            if kv_cache_usage is not None:
                self.kv_cache_usage[server_idx] = kv_cache_usage
            if cpu_cache_usage is not None:
                self.cpu_cache_usage[server_idx] = cpu_cache_usage


def record(buffer: shmstats.SharedStatsBuffer | LockedStatsBuffer, index: int, calls: int) -> None:
    for _ in range(calls):
        buffer.record(
            index,
            prompt_tokens=100,
            generation_tokens=10,
            preemptions=1,
            running_reqs=12,
            waiting_reqs=5,
            kv_cache_usage=0.653,
        )


def nanoseconds(run: Callable[[int], None]) -> float:
    """Of the processor per call, which other programs take little of; `run(n)` makes n calls."""
    calls = 100
    while True:
        start = time.process_time()
        run(calls)
        if (took := time.process_time() - start) > SECONDS / ROUNDS / 4:
            break
        calls *= 2
    calls = max(int(calls * SECONDS / ROUNDS / took), 1)

    def one() -> float:
        start = time.process_time()
        run(calls)
        return (time.process_time() - start) / calls * 1e9

    return min(one() for _ in range(ROUNDS))


def nanoseconds_of_two(*runs: Callable[[int, int], None]) -> list[float]:
    """By the clock, per call of each of two processes that run at the same time; `run(index, n)`.

    Waiting for a lock takes no processor, so only the clock shows it, and the clock shows what else
    the machine does: the runs take turns, so that all have the same share, and of the rounds it is
    the median.
    """
    barrier, times = FORK.Barrier(2), FORK.Queue()
    alone = [nanoseconds(functools.partial(run, 0)) for run in runs]
    calls = [max(int(SECONDS / ROUNDS / each * 1e9), 10) for each in alone]

    def child(index: int) -> None:
        for _ in range(ROUNDS):
            for place, run in enumerate(runs):
                barrier.wait()
                start = time.perf_counter()
                run(index, calls[place])
                times.put((place, (time.perf_counter() - start) / calls[place] * 1e9))

    processes = [FORK.Process(target=child, args=(index,)) for index in range(2)]
    for process in processes:
        process.start()
    took: list[list[float]] = [[] for _ in runs]
    for _ in range(2 * ROUNDS * len(runs)):
        place, each = times.get()
        took[place].append(each)
    for process in processes:
        process.join()
    return [statistics.median(each) for each in took]


def adds(add: Callable[[int], None]) -> Callable[[int], None]:
    def run(calls: int) -> None:
        for _ in range(calls):
            add(1)

    return run


def row(what: str, ours: float, theirs: float | None = None, goal: str = "") -> None:
    compared = "" if theirs is None else f"{theirs:9.0f} ns   1/{theirs / ours:.1f}"
    print(f"{what:52} {ours:7.0f} ns {compared:24} {goal}")


def main() -> None:
    schema = shmstats.Schema(
        "bench",
        shmstats.CounterDef("drained"),
        shmstats.CounterDef("single", single_writer=True),
        shmstats.GaugeDef("gauge"),
        shmstats.SnapshotDef("s", shmstats.GaugeDef("a"), shmstats.GaugeDef("b", type="f64")),
    )
    locked = LockedStatsBuffer(4)
    print(f"{'':52} {'shmstats':>10} {'with locks':>12}   ratio")
    with shmstats.SharedStatsBuffer(4) as ours:
        row(
            "record() of six fields, alone",
            nanoseconds(lambda n: record(ours, 0, n)),
            nanoseconds(lambda n: record(locked, 0, n)),
            "goal: 1/8",
        )
        mine, theirs = nanoseconds_of_two(
            lambda index, n: record(ours, index, n), lambda index, n: record(locked, index, n)
        )
        row("record() of six fields, two processes", mine, theirs, "goal: 1/20")
        ours.record(0, prompt_tokens=1)
        row(
            "get_aggregated_stats()",
            nanoseconds(lambda n: [ours.get_aggregated_stats() for _ in range(n)]),
        )
    with shmstats.Region.private(schema, 1) as region, region.claim(0) as server:
        theirs = nanoseconds(adds(prometheus_client.Counter("bench", "Bench").inc))
        add = server.counter("drained").add
        row(
            "Counter.add(1), and prometheus_client's inc(1)",
            nanoseconds(adds(add)),
            theirs,
            "goal: 60 ns",
        )
        row("Counter.add(1), single-writer", nanoseconds(adds(server.counter("single").add)))
        row("Gauge.set(1)", nanoseconds(adds(server.gauge("gauge").set)))
        publish, publish_row = server.snapshot("s").publish, server.snapshot("s").publish_row
        row(
            "Snapshot.publish(a=, b=)",
            nanoseconds(lambda n: [publish(a=1, b=0.5) for _ in range(n)]),
        )
        row(
            "Snapshot.publish_row((a, b))",
            nanoseconds(lambda n: [publish_row((1, 0.5)) for _ in range(n)]),
        )
        row("an empty call of Python", nanoseconds(adds(lambda n: None)))


if __name__ == "__main__":
    main()
