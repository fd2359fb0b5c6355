"""The stats of several API servers, in this process: each part of the line, takeover, the end."""

from __future__ import annotations

import json
import logging
import os
import re
import signal

import pytest
import shmstats
from conftest import in_child
from shmstats.vllm.fields import Style, engines_of, schema
from shmstats.vllm.finish import finish
from shmstats.vllm.lines import HitWindow
from shmstats.vllm.report import Settings
from shmstats.vllm.stats import ServerStats
from standins import CacheStats, SchedulerStats, SpecDecodingStats, iteration

LOGGER = logging.getLogger("vllm.test")


class Servers:
    """API servers of one launch."""

    def __init__(self, folder, caplog, count=2, engines=(0,), settings=Settings(), **style):
        self.path = folder / "vllm-1-1-1.shmstats"
        self.caplog, self.style, self.settings = caplog, Style(**style), settings
        self.count, self.engines = count, engines
        caplog.set_level(logging.DEBUG)
        self.all = [self.start(rank) for rank in range(count)]
        caplog.clear()

    def start(self, rank: int) -> ServerStats:
        return ServerStats(
            self.path, rank=rank, count=self.count, engines=self.engines, logger=LOGGER,
            style=self.style, settings=self.settings,
        )  # fmt: skip

    def __getitem__(self, rank: int) -> ServerStats:
        return self.all[rank]

    def lines(self) -> list[str]:
        """The lines of one tick of all; rates are shown as N, since they depend on the time."""
        self.caplog.clear()
        for server in self.all:
            server.tick()
        said = [record.getMessage() for record in self.caplog.records]
        return [re.sub(r"[0-9.]+ tokens/s", "N tokens/s", line) for line in said]

    def levels(self) -> list[str]:
        return [record.levelname for record in self.caplog.records]

    def close(self) -> None:
        for server in self.all:
            server.close()


@pytest.fixture
def servers(folder, caplog):
    made = []

    def make(**options) -> Servers:
        made.append(Servers(folder, caplog, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
        assert not one.path.exists()


START = (
    "All 2 API Servers: Avg prompt throughput: N tokens/s, Avg generation throughput: N tokens/s, "
)


def test_a_line_over_all_servers(servers):
    two = servers(device="CPU")
    two[0].record(SchedulerStats(5, 1, kv_cache_usage=0.5), iteration(100, 7), None, 0)
    two[1].record(
        SchedulerStats(3, 2, kv_cache_usage=0.653), iteration(200, 8, cached=150), None, 0
    )
    # The engine told server 1 last: 3 run, not 8.
    assert two.lines() == [START + "Running: 3 reqs, Waiting: 2 reqs, CPU KV cache usage: 65.3%"]
    assert two.levels() == ["INFO"]


def test_throughputs_are_of_all_servers_and_of_computed_tokens(servers, folder, caplog):
    two = servers(settings=Settings(json=str(folder / "intervals")))
    two[0].record(None, iteration(100, 7), None, 0)
    two[1].record(None, iteration(200, 8, cached=150), None, 0)
    two[0].tick()
    row = json.loads((folder / "intervals").read_text())
    assert row["deltas"] == {
        'prompt_tokens{engine="0"}': 300,
        'prompt_tokens_cached{engine="0"}': 150,
        'prompt_tokens_computed{engine="0"}': 150,
        'generation_tokens{engine="0"}': 15,
    }
    prompt, generation = (float(n) for n in re.findall(r"([0-9.]+) tokens/s", row["lines"][0]))
    assert prompt == pytest.approx(150 / row["elapsed"], abs=0.051)
    assert generation == pytest.approx(15 / row["elapsed"], abs=0.051)
    (folder / "intervals").unlink()


def test_every_part_in_order(servers):
    two = servers(corrupted=True)
    fetch = {"waiting_to_start": 1, "in_progress": 2, "completed_waiting": 3}
    stats = SchedulerStats(12, 5, 2, 0.653, fetch, CacheStats(10, 100, 25), CacheStats(4, 80, 60))
    two[0].record(stats, iteration(9, 9, num_preempted_reqs=2), CacheStats(1, 8, 2), 0)
    two[1].record(None, iteration(num_preempted_reqs=1, num_corrupted_reqs=4), None, 0)
    assert two.lines() == [
        START + "Running: 12 reqs, Waiting: 7 reqs, Deferred: 2 reqs, "
        "KV fetch: 1 waiting to start, 2 in progress, 3 completed waiting, Preemptions: 3, "
        "GPU KV cache usage: 65.3%, Prefix cache hit rate: 25.0%, Corrupted: 4 reqs, "
        "External prefix cache hit rate: 75.0%, MM cache hit rate: 25.0%"
    ]
    two[1].record(SchedulerStats(), None, None, 0)
    assert two.lines() == [
        START + "Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, "
        "Prefix cache hit rate: 25.0%, Corrupted: 0 reqs, "
        "External prefix cache hit rate: 75.0%, MM cache hit rate: 25.0%"
    ]


def test_debug_once_idle_for_two_intervals(servers):
    two = servers()
    two.lines()
    assert two.levels() == ["DEBUG"]
    two[1].record(None, iteration(generation=1), None, 0)
    levels = []
    for _ in range(3):
        two.lines()
        levels += two.levels()
    assert levels == ["INFO", "INFO", "DEBUG"]


def test_engines(servers):
    two = servers(engines=(0, 1), settings=Settings(lines="both"))
    two[0].record(
        SchedulerStats(1, kv_cache_usage=0.2, prefix_cache_stats=CacheStats(1, 10, 1)),
        iteration(1),
        None,
        0,
    )
    two[0].record(SchedulerStats(2, kv_cache_usage=0.4), iteration(1), CacheStats(1, 2, 1), 1)
    two[1].record(
        SchedulerStats(5, kv_cache_usage=0.6, prefix_cache_stats=CacheStats(1, 10, 9)),
        iteration(1),
        None,
        1,
    )
    rates = "Avg prompt throughput: N tokens/s, Avg generation throughput: N tokens/s, "
    assert two.lines() == [
        # 1 of engine 0 and the newer 5 of engine 1; the mean usage; the hit rate of both.
        START + "Running: 6 reqs, Waiting: 0 reqs, GPU KV cache usage: 40.0%, "
        "Prefix cache hit rate: 50.0%, MM cache hit rate: 50.0%",
        "Engine 000: " + rates + "Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 20.0%, "
        "Prefix cache hit rate: 10.0%",
        "Engine 001: " + rates + "Running: 5 reqs, Waiting: 0 reqs, GPU KV cache usage: 60.0%, "
        "Prefix cache hit rate: 90.0%",
    ]


def test_only_engines(servers):
    two = servers(engines=(0, 1), settings=Settings(lines="engines"), positions=1)
    two[0].record(
        SchedulerStats(spec_decoding_stats=SpecDecodingStats(1, 1, 1, [1])), None, None, 0
    )
    assert [line.split(":")[0] for line in two.lines()] == [
        "Engine 000", "Engine 001", "SpecDecoding metrics",
    ]  # fmt: skip


def test_an_unknown_engine_is_told_once(servers, caplog):
    two = servers()
    for _ in range(3):
        two[0].record(SchedulerStats(1), None, None, 7)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_speculative_decoding(servers):
    two = servers(positions=3)
    for server, accepted in ((two[0], [6, 4, 2]), (two[1], [2, 0, 0])):
        spec = SpecDecodingStats(8, 24, sum(accepted), accepted)
        server.record(SchedulerStats(spec_decoding_stats=spec), iteration(generation=9), None, 0)
    assert two.lines()[1:] == [
        "SpecDecoding metrics: Mean acceptance length: 1.88, Accepted throughput: N tokens/s, "
        "Drafted throughput: N tokens/s, Accepted: 14 tokens, Drafted: 48 tokens, "
        "Per-position acceptance rate: 0.500, 0.250, 0.125, Avg Draft acceptance rate: 29.2%"
    ]
    assert len(two.lines()) == 1


def test_diffusion(servers):
    two = servers(positions=1, is_diffusion=True)
    spec = SpecDecodingStats(4, 32, 8, [])
    two[1].record(SchedulerStats(spec_decoding_stats=spec), iteration(generation=8), None, 0)
    assert two.lines()[1:] == [
        "DiffusionDecoding metrics: Committed token throughput: N tokens/s, "
        "Mean denoising steps per canvas: 4.00, Mean tokens committed per denoising step: 2.00, "
        "Committed: 8 tokens, Denoising steps: 4, Canvas positions evaluated: 32"
    ]


def test_hit_window():
    window = HitWindow()
    assert window.rate is None
    window.observe(600, 600, 600)
    assert window.rate == 1
    window.observe(400, 400, 0)
    assert window.rate == 0.6
    window.observe(1, 100, 0)
    assert window.rate == 0, "the oldest step went"
    window.observe(5000, 100, 50)
    assert window.rate == 0.5, "the newest counts whole"
    window.observe(0, 0, 0)
    assert window.rate == 0.5
    window.observe(10, 10, 10, resets=1)
    assert window.rate is None, "before and after a reset cannot be told apart"
    window.observe(10, 0, 0)
    assert window.rate == 0


def test_figures_that_this_vllm_does_not_give(servers):
    class Old:
        num_running_reqs = 4
        prefix_cache_stats = None

    missing = {"kv_cache_usage", "num_waiting_reqs", "num_generation_tokens"}
    two = servers(missing=frozenset(missing))
    two[1].record(Old(), Old(), None, 0)
    assert two.lines() == ["All 2 API Servers: Avg prompt throughput: N tokens/s, Running: 4 reqs"]


def test_schema_tells_engines_and_style():
    style = Style("CPU", True, frozenset({"a", "b"}), 3, True)
    for one in (style, Style()):
        made = schema([0, 5], one)
        assert engines_of(made) == [0, 5]
        assert Style.of(made) == one


def test_only_the_primary_logs(servers):
    two = servers()
    assert two[0].is_primary and not two[1].is_primary
    two[1].tick()
    two[1].tick()
    assert two.caplog.records == []


def test_takeover(folder, caplog):
    """The primary is killed: another server logs, and goes on with its hit rates."""
    two = Servers(folder, caplog, count=1)
    two.count = 2
    path = two.path
    two.close()
    ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        first = two.start(0)
        stats = SchedulerStats(3, prefix_cache_stats=CacheStats(900, 90, 45))
        first.record(stats, iteration(1), None, 0)
        first.tick()
        first.record(None, iteration(generation=5), None, 0)
        os.write(ready[1], b".")
        signal.pause()
    os.read(ready[0], 1)
    second = two.start(1)
    caplog.clear()
    second.tick()
    second.tick()
    assert caplog.records == [], "the primary lives"
    second.record(SchedulerStats(prefix_cache_stats=CacheStats(100, 10, 5)), None, None, 0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    second.tick()
    line = caplog.records[-1].getMessage()
    assert line.startswith("All 2 API Servers (1 dead): ")
    assert "Prefix cache hit rate: 50.0%" in line, "of 1000 requests, 900 of them before"
    assert "Avg generation throughput: 0.0" not in line, "what the dead had counted is there"
    # Another 100 requests push the 900 out, as one step.
    second.record(SchedulerStats(prefix_cache_stats=CacheStats(100, 10, 10)), None, None, 0)
    second.tick()
    assert "Prefix cache hit rate: 75.0%" in caplog.records[-1].getMessage()
    totals = shmstats.Inspector(path).totals()
    second.close()
    assert totals.get("generation_tokens") == 5
    assert not path.exists()


def test_the_rest_is_logged_when_servers_stop(servers, caplog):
    two = servers()
    two.lines()
    caplog.clear()
    two[1].record(None, iteration(generation=3), None, 0)
    two[0].close()
    assert len(caplog.records) == 1
    two[1].record(None, iteration(generation=4), None, 0)
    two[1].close()
    two.all.clear()
    assert len(caplog.records) == 2
    assert not two.path.exists()


def test_nothing_is_logged_when_nothing_is_left(servers, caplog):
    two = servers()
    caplog.clear()
    two.close()
    two.all.clear()
    assert caplog.records == []


def test_the_launcher_tells_the_rest(folder, caplog):
    caplog.set_level(logging.DEBUG)
    path, log = folder / "vllm-1-1-1.shmstats", folder / "intervals"
    settings = Settings(json=str(log))

    def server() -> None:
        style = Style("CPU", positions=1)
        stats = ServerStats(
            path, rank=0, count=2, engines=[0], logger=LOGGER, style=style, settings=settings
        )
        stats.record(SchedulerStats(), iteration(10, 10), None, 0)
        stats.tick()
        spec = SpecDecodingStats(1, 1, 1, [1])
        stats.record(SchedulerStats(spec_decoding_stats=spec), iteration(generation=2), None, 0)
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(server) == -signal.SIGKILL
    inspector = shmstats.Inspector(path)
    os.environ["SHMSTATS_VLLM_JSON"] = str(log)
    try:
        finish(path, LOGGER)
    finally:
        del os.environ["SHMSTATS_VLLM_JSON"]
    assert not path.exists()
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    deltas = [row["deltas"].get('generation_tokens{engine="0"}') for row in rows]
    assert deltas == [10, 2]
    assert inspector.totals().get("generation_tokens") == 12
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("All 2 API Servers: ") and "CPU KV cache" in said[0]
    assert said[1].startswith("SpecDecoding metrics: ")
    finish(path, LOGGER)


def test_the_launcher_leaves_living_servers_alone(servers, monkeypatch, caplog):
    monkeypatch.setattr("shmstats.vllm.finish.PATIENCE", 0.05)
    two = servers()
    two[0].record(None, iteration(generation=2), None, 0)
    caplog.clear()
    finish(two.path, LOGGER)
    assert caplog.records == []
    assert two.path.exists()


def test_hello(folder, caplog):
    caplog.set_level(logging.INFO)
    stats = ServerStats(folder / "a", rank=0, count=4, engines=[0], logger=LOGGER)
    hello = caplog.records[-1].getMessage()
    assert "all 4 API servers and 1 engine follows" in hello
    assert f"shmstats top {folder / 'a'}" in hello
    assert "disabling stats logging" in hello
    stats.close()
