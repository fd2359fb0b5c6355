"""bench.py [SECONDS]: what counting costs, as ratios to the same with locks, measured in one run.

- `SharedStatsBuffer.record` with six fields, against an equal class on `multiprocessing.Array`s
  under one `Lock`: alone, and two processes at full speed.
- `Counter.add(1)`, against `prometheus_client`'s counter in its multi-process mode.

Each figure is the least of several rounds: what else the machine does can only add to it.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 0.5
ROUNDS = 5
FORK = multiprocessing.get_context("fork")

# Before prometheus_client is imported: it looks once.
os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="shmstats-bench-")

import prometheus_client  # noqa: E402
import shmstats  # noqa: E402


class LockedStatsBuffer:
    """The same duties with what `multiprocessing` offers."""

    COUNTERS = ("prompt_tokens", "generation_tokens", "preemptions", "corrupted_reqs")
    GAUGES = ("running_reqs", "waiting_reqs", "kv_cache_usage", "cpu_cache_usage")

    def __init__(self, num_servers: int) -> None:
        self.lock = FORK.Lock()
        self.counters = {name: FORK.Array("L", num_servers) for name in self.COUNTERS}
        self.gauges = {name: FORK.Array("d", num_servers) for name in self.GAUGES}
        self.updated = FORK.Array("d", num_servers)

    def record(self, server_idx: int, **stats: float) -> None:
        with self.lock:
            for name, value in stats.items():
                if name in self.counters:
                    self.counters[name][server_idx] += value
                else:
                    self.gauges[name][server_idx] = value
            self.updated[server_idx] = time.time()


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
    """Per call; `run(n)` makes n calls."""
    calls = 100
    while True:
        start = time.perf_counter()
        run(calls)
        if (took := time.perf_counter() - start) > SECONDS / ROUNDS / 4:
            break
        calls *= 2
    calls = max(int(calls * SECONDS / ROUNDS / took), 1)

    def one() -> float:
        start = time.perf_counter()
        run(calls)
        return (time.perf_counter() - start) / calls * 1e9

    return min(one() for _ in range(ROUNDS))


def nanoseconds_of_two(run: Callable[[int, int], None]) -> float:
    """Per call of each of two processes that run at the same time; `run(index, n)`."""
    calls = max(int(SECONDS / ROUNDS / nanoseconds(lambda n: run(0, n)) * 1e9), 1)
    barrier, times = FORK.Barrier(2), FORK.Queue()

    def child(index: int) -> None:
        for _ in range(ROUNDS):
            barrier.wait()
            start = time.perf_counter()
            run(index, calls)
            times.put((time.perf_counter() - start) / calls * 1e9)

    processes = [FORK.Process(target=child, args=(index,)) for index in range(2)]
    for process in processes:
        process.start()
    took = [times.get() for _ in range(2 * ROUNDS)]
    for process in processes:
        process.join()
    # The mean of the better half: with two writers, luck goes both ways.
    return sum(sorted(took)[:ROUNDS]) / ROUNDS


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
        row(
            "record() of six fields, two processes",
            nanoseconds_of_two(lambda index, n: record(ours, index, n)),
            nanoseconds_of_two(lambda index, n: record(locked, index, n)),
            "goal: 1/20",
        )
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
