"""The plugin as vLLM calls it, and which launch it takes itself for."""

from __future__ import annotations

import asyncio
import importlib
import logging
import multiprocessing
import os
import subprocess
import sys

import pytest
import shmstats
import standins
from conftest import python
from shmstats.vllm import launch, name_region
from shmstats.vllm.doctor import main
from shmstats.vllm.launch import VARIABLE, Launcher, region_of_this_server
from standins import CacheStats, SchedulerStats, config, deliver, iteration


@pytest.fixture
def plugin(folder, monkeypatch, caplog):
    """The plugin in a process that a launcher has spawned, as far as it can tell."""
    caplog.set_level(logging.WARNING, "asyncio")
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: _Parent(os.getppid()))
    for name in [name for name in os.environ if name.startswith("SHMSTATS_VLLM")]:
        monkeypatch.delenv(name)
    standins.install(monkeypatch)
    module = importlib.import_module("shmstats.vllm.plugin")
    started = []
    # What runs at exit is run by the test.
    monkeypatch.setattr(module.atexit, "register", lambda function, *_: started.append(function))
    yield module
    for stop in started:
        stop()
    assert list(folder.iterdir()) == []


class _Parent:
    def __init__(self, pid: int) -> None:
        self.pid = pid


def messages(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_it_logs_for_all(plugin, caplog):
    loggers = [plugin.StatLogger(vllm_config=config(rank), engine_indexes=[0]) for rank in (0, 1)]
    loggers[0].log_engine_initialized()
    deliver(loggers[0], SchedulerStats(2), iteration(5, 1), None, 0)
    deliver(loggers[1], SchedulerStats(4), at=2.0)
    for logger in loggers:
        logger.log()
    line = messages(caplog)[-1]
    assert line.startswith("All 2 API Servers: ") and "Running: 4 reqs" in line and "CPU KV" in line
    assert {record.name for record in caplog.records} == {"vllm.shmstats"}


def test_the_engines_own_order_counts(plugin, caplog):
    """Server 0 reads the newer of two messages before server 1 gets to the older one."""
    loggers = [plugin.StatLogger(vllm_config=config(rank), engine_indexes=[0]) for rank in (0, 1)]
    deliver(loggers[0], SchedulerStats(0), at=101.5)
    deliver(loggers[1], SchedulerStats(3), at=101.0)
    loggers[0].log()
    assert "Running: 0 reqs" in messages(caplog)[-1]
    deliver(loggers[1], SchedulerStats(5), at=102.0)
    loggers[0].log()
    assert "Running: 5 reqs" in messages(caplog)[-1]


def test_without_the_engines_time_that_is_told_once(plugin, caplog):
    loggers = [plugin.StatLogger(vllm_config=config(rank), engine_indexes=[0]) for rank in (0, 1)]
    for logger, running in ((loggers[0], 1), (loggers[1], 2), (loggers[1], 3)):
        logger.record(SchedulerStats(running), None, None, 0)
    said = [text for text in messages(caplog) if "does not show when" in text]
    assert len(said) == 2, "by each server"
    # A message that cannot be stamped gets through.
    deliver(loggers[1], None, iteration(1), None, 0)
    client = sys.modules["vllm.v1.engine.core_client"].AsyncMPClient
    assert asyncio.run(client("no message at all").get_output_async()) == "no message at all"
    loggers[0].log()
    assert "Running: 3 reqs" in messages(caplog)[-1]


@pytest.mark.parametrize("why", ["one server", "switched off", "another line"])
def test_it_is_silent(plugin, folder, monkeypatch, caplog, why):
    count = 1 if why == "one server" else 2
    if why == "switched off":
        monkeypatch.setenv("SHMSTATS_VLLM", "0")
    if why == "another line":
        monkeypatch.setattr(plugin.loggers, "MultiServerLoggingStatLogger", object, raising=False)
    logger = plugin.StatLogger(vllm_config=config(0, count), engine_indexes=[0])
    deliver(logger, SchedulerStats(1), iteration(1), None, 0)
    logger.log()
    assert list(folder.iterdir()) == []
    assert len(messages(caplog)) == (1 if why == "another line" else 0)


def test_no_exception_leaves_it(plugin, folder, monkeypatch, caplog):
    logger = plugin.StatLogger(vllm_config=config(), engine_indexes=[0])

    class Broken:
        def __getattr__(self, name: str):
            raise RuntimeError(name)

    caplog.clear()
    for _ in range(3):
        deliver(logger, Broken(), Broken(), Broken(), 0)
    assert len(messages(caplog)) == 1 and "serving goes on" in messages(caplog)[0]
    monkeypatch.setenv("SHMSTATS_VLLM_JSON", "/nowhere/at/all")

    class Panic(BaseException):
        pass

    def tick() -> None:
        raise Panic

    monkeypatch.setattr(logger._stats, "tick", tick)
    logger.log()
    logger.log()
    assert len(messages(caplog)) == 2
    monkeypatch.undo()


def test_what_is_not_ours_passes(plugin, monkeypatch):
    logger = plugin.StatLogger(vllm_config=config(), engine_indexes=[0])

    def tick() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(logger._stats, "tick", tick)
        logger.log()


@pytest.mark.parametrize("trouble", ["no folder", "no config", "not spawned", "bad region"])
def test_a_start_that_fails_is_a_warning(plugin, folder, monkeypatch, caplog, trouble):
    vllm_config = config()
    if trouble == "no folder":
        monkeypatch.setenv("SHMSTATS_DIR", str(folder / "none"))
    if trouble == "no config":
        vllm_config = None
    if trouble == "not spawned":
        monkeypatch.setattr(multiprocessing, "parent_process", lambda: None)
    if trouble == "bad region":
        region_of_this_server().write_bytes(b"x" * 5000)
    logger = plugin.StatLogger(vllm_config=vllm_config, engine_indexes=[0])
    deliver(logger, SchedulerStats(1), iteration(1), None, 0)
    logger.log()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "serving goes on" in messages(caplog)[0]
    for path in folder.iterdir():
        path.unlink()


def test_lines_of_connectors_are_each_servers_own(plugin, caplog):
    logger = plugin.StatLogger(vllm_config=config(rank=1), engine_indexes=[0])
    deliver(
        logger, SchedulerStats(kv_connector_stats={"moved": 3}, iteration_details=object()), None
    )
    logger.log()
    logger.log()
    said = [text for text in messages(caplog) if not text.startswith("All ")]
    assert said == ["Engine 000: Iteration", "API Server 1: KV Transfer metrics: [{'moved': 3}]"]


def test_a_missing_field_is_told_once(plugin, monkeypatch, caplog):
    class Iteration:
        prompt_token_stats = standins.PromptTokenStats()

    stats = sys.modules["vllm.v1.metrics.stats"]
    monkeypatch.setattr(stats, "IterationStats", Iteration)
    logger = plugin.StatLogger(vllm_config=config(), engine_indexes=[0])
    deliver(logger, SchedulerStats(1), Iteration(), None, 0)
    logger.log()
    said = [text for text in messages(caplog) if "does not tell" in text]
    assert len(said) == 1
    assert "num_corrupted_reqs, num_generation_tokens;" in said[0]
    assert "generation throughput" not in messages(caplog)[-1]


def test_timing(plugin, monkeypatch, caplog):
    monkeypatch.setenv("SHMSTATS_VLLM_TIMING", "1")
    logger = plugin.StatLogger(vllm_config=config(positions=2), engine_indexes=[0])
    deliver(logger, SchedulerStats(1), iteration(1), CacheStats(1, 1, 1), 0)
    logger.log()
    assert "record() took" in messages(caplog)[-1]


def test_a_wrong_choice_of_lines_is_told(plugin, monkeypatch, caplog):
    monkeypatch.setenv("SHMSTATS_VLLM_LINES", "some")
    logger = plugin.StatLogger(vllm_config=config(), engine_indexes=[0])
    logger.log()
    assert "expected all, engines or both, found 'some'" in messages(caplog)[0]
    assert messages(caplog)[-1].startswith("All 2 API Servers")


def test_launcher_is_named_for_good():
    me = Launcher.of(os.getpid())
    assert Launcher.of(os.getpid()) == me
    assert me.pid == os.getpid() and me.start_time > 0 and me.namespace > 0
    assert me.region().name == f"vllm-{me}.shmstats"


LAUNCH = """
import multiprocessing, os, sys
from shmstats.vllm import name_region
from shmstats.vllm.launch import VARIABLE, region_of_this_server

def server(queue):
    name_region()
    queue.put((os.environ.get(VARIABLE), str(region_of_this_server())))

if __name__ == "__main__":
    name_region()
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    children = [context.Process(target=server, args=(queue,)) for _ in range(2)]
    for child in children: child.start()
    for child in children: print(*queue.get(timeout=60), sep="|")
    for child in children: child.join()
"""


def test_servers_of_one_launch_agree_and_launches_never_mix(folder, monkeypatch):
    def run() -> set[tuple[str, str]]:
        script = folder / "launch.py"
        script.write_text(LAUNCH)
        ran = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=60
        )
        assert ran.stderr == ""
        return {tuple(line.split("|")) for line in ran.stdout.splitlines()}

    one = run()
    assert len(one) == 1
    ((variable, path),) = one
    assert variable.endswith(f":{path}")
    # A launch inside another one inherits its variable, and takes no notice.
    monkeypatch.setenv(VARIABLE, variable)
    two = run()
    assert len(two) == 1 and two != one
    assert sorted(file.name for file in folder.iterdir()) == ["launch.py"], "naming makes nothing"


def test_a_variable_of_another_launcher_is_ignored(folder, monkeypatch):
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: _Parent(os.getppid()))
    mine = Launcher.of(os.getppid())
    monkeypatch.setenv(VARIABLE, f"{mine}:/somewhere/else")
    assert str(region_of_this_server()) == "/somewhere/else"
    monkeypatch.setenv(VARIABLE, "1-1-1:/somewhere/else")
    assert region_of_this_server() == mine.region()


def test_name_region(folder, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    registered = []
    monkeypatch.setattr(launch.atexit, "register", lambda *what: registered.append(what))
    monkeypatch.setenv(VARIABLE, "1-1-1:/x")
    monkeypatch.setenv("SHMSTATS_VLLM", "0")
    name_region()
    assert os.environ[VARIABLE] == "1-1-1:/x" and registered == []
    monkeypatch.delenv("SHMSTATS_VLLM")
    name_region()
    me = Launcher.of(os.getpid())
    assert os.environ[VARIABLE] == f"{me}:{me.region()}"
    assert len(registered) == 1
    standins.install(monkeypatch)
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "1")
    name_region()
    assert len(registered) == 1
    assert "nothing to do" in caplog.text


def test_dead_launches_are_collected(folder):
    region = "import os, sys, shmstats; from shmstats.vllm.fields import *\n"
    region += "from shmstats.vllm.launch import PREFIX\n"
    region += "path = shmstats.default_path(PREFIX + sys.argv[1])\n"
    region += "shmstats.Region.create(path, schema([0], Style()), 2); os._exit(0)"
    me = Launcher.of(os.getpid())
    for name in (str(me), f"{me.pid}-1-{me.namespace}", "not-a-launch"):
        assert python(region, name).returncode == 0
    launch.remove_dead_launches()
    left = [path.name for path in folder.iterdir()]
    assert left == [f"vllm-{me}.shmstats"], "its launcher lives, and tells the rest itself"


def test_entry_points():
    from importlib.metadata import entry_points

    (general,) = entry_points(group="vllm.general_plugins", name="shmstats")
    assert general.load() is name_region
    (stats,) = entry_points(group="vllm.stat_logger_plugins", name="shmstats")
    assert stats.value == "shmstats.vllm.plugin:StatLogger"


@pytest.mark.parametrize(
    "name, value, text",
    [
        ("VLLM_PLUGINS", "other", "shmstats is not in it"),
        ("SHMSTATS_VLLM", "0", "switched off"),
        ("VLLM_USE_RUST_FRONTEND", "1", "not Python"),
        ("VLLM_LOGGING_LEVEL", "WARNING", "logged at INFO"),
        ("VLLM_CONFIGURE_LOGGING", "0", "may go nowhere"),
        ("SHMSTATS_DIR", "/nowhere", "no folder"),
    ],
)
def test_doctor_names_the_reason(folder, monkeypatch, capsys, name, value, text):
    monkeypatch.setenv(name, value)
    assert main(["doctor"]) == 1
    reasons = [line for line in capsys.readouterr().out.splitlines() if line.startswith("HERE")]
    assert any(text in line for line in reasons)


def test_doctor_shows_running_launches(folder, capsys, monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.32.0")
    for variable in ("VLLM_PLUGINS", "VLLM_LOGGING_LEVEL"):
        monkeypatch.delenv(variable, raising=False)
    layout = shmstats.Schema("vllm", shmstats.CounterDef("x"))
    path = folder / "vllm-1-1-1.shmstats"
    with shmstats.Region.create(path, layout, 2) as region, region.claim(0):
        assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert f"{path}: 1 of 2 servers alive, 0 drains" in out
    assert "Nothing here is in the way" in out
    assert main([]) == 2
