from __future__ import annotations

import ast
import gc
import os
import time
import weakref
from pathlib import Path

import pytest
import shmstats
from conftest import in_child, python
from shmstats import Region


def test_counts_reach_one_interval_and_the_totals(folder, schema):
    with Region.create(folder / "a.shmstats", schema, 2) as region:
        servers = [region.claim(0), region.claim(1)]
        for server in servers:
            server.counter("requests", {"status": "ok"}).add(5)
            server.counter("bytes_sent").add(100)
        servers[0].counter("requests", {"status": "failed"}).inc()
        with region.primary() as primary, region.inspector() as inspector:
            interval = primary.peek()
            assert (interval.delta("requests"), interval.number) == (11, 0)
            interval = primary.drain()
            assert interval.delta("requests") == 11
            assert interval.delta("requests", {"status": "ok"}) == 10
            assert interval.delta_in(0, "requests") == 6
            assert interval.delta("bytes_sent") == 200
            assert interval.deltas['requests{status="failed"}'] == 1
            assert interval.rate("requests") > 0
            assert interval.ratio("requests", "bytes_sent") == pytest.approx(11 / 200)
            assert (interval.number, interval.server_count) == (1, 2)
            assert primary.drain().is_idle
            totals = inspector.totals()
            assert totals.settled
            assert totals.get("requests") == 11
            assert totals.in_slot(1, "requests") == 5
            assert totals.pending("requests") == 0
            assert totals.as_dict() == {
                'requests{status="ok"}': 10,
                'requests{status="failed"}': 1,
                "bytes_sent": 200,
            }


def test_gauges_and_snapshots(folder, schema):
    with Region.create(folder / "a.shmstats", schema, 2) as region:
        one, two = region.claim(0), region.claim(1)
        one.gauge("load").set(0.5)
        two.gauge("load").set(1)
        one.gauge("workers").set(3)
        with one.gauge("in_flight").in_flight():
            assert region.inspector().observe().gauge("in_flight") == 1
        two.gauge("in_flight").add(4)
        two.gauge("in_flight").sub()
        labels = {"engine": "0"}
        one.snapshot("engine", labels).publish(running=3, usage=0.25)
        two.snapshot("engine", labels).publish(running=7)
        with region.primary() as primary:
            interval = primary.drain()
        assert interval.gauge("load") == 0.75
        assert interval.gauge("workers") == 3
        assert interval.gauge("in_flight") == 3
        assert interval.gauge("running") == 7, "the newest, not the sum"
        assert interval.gauge("usage") is None, "left out of the newest"
        assert 0 <= interval.age("running") < 60
        assert interval.gauges['running{engine="0"}'] == 7
        two.snapshot("engine", labels).publish(running=None, usage=0.5)
        seen = region.inspector().observe()
        assert seen.gauge("running", labels) is None
        assert seen.gauge("usage", labels) == 0.5
        assert seen.gauges_of_slot(0) == {"in_flight": 0, "load": 0.5, "workers": 3}
        one.snapshot("engine", labels).publish_row((9, 0.125))
        assert region.inspector().observe().gauge("usage", labels) == 0.125
        one.snapshot("engine", labels).publish_at(1, running=1)
        assert region.inspector().observe().gauge("usage", labels) == 0.5, "older does not win"
        with region.primary() as primary:
            primary.reset()
            assert primary.drain().gauges == {}


def test_wrong_values_are_told_and_set_nothing(folder, schema):
    with Region.create(folder / "a.shmstats", schema, 1) as region, region.claim(0) as server:
        counter = server.counter("requests", {"status": "ok"})
        for wrong, kind in (
            (-1, ValueError),
            (1.5, TypeError),
            (2**64, ValueError),
            ("1", TypeError),
        ):
            with pytest.raises(kind):
                counter.add(wrong)
        engine = server.snapshot("engine", {"engine": "0"})
        with pytest.raises(TypeError, match="no gauge named walking: there are running, usage"):
            engine.publish(running=1, walking=2)
        with pytest.raises(ValueError):
            engine.publish(usage=0.5, running=-1)
        with pytest.raises(ValueError):
            engine.publish_row((1, 2, 3))
        with pytest.raises(shmstats.InvalidValueError):
            server.gauge("load").add(1)
        server.gauge("load").set(float("nan"))
        seen = region.inspector().observe()
        assert seen.gauges == {}
        assert seen.skipped_writes == 1
        assert region.inspector().totals().get("requests") == 0


def test_a_value_whose_conversion_is_python_code(folder, schema):
    with Region.create(folder / "a.shmstats", schema, 1) as region, region.claim(0) as server:
        counter = server.counter("bytes_sent")

        class Counting:
            def __index__(self) -> int:
                counter.add(1)
                return 10

            def __float__(self) -> float:
                counter.add(1)
                return 0.5

        counter.add(Counting())
        server.gauge("workers").set(Counting())
        server.gauge("load").set(Counting())
        server.snapshot("engine", {"engine": "0"}).publish(running=Counting(), usage=Counting())
        assert region.inspector().totals().get("bytes_sent") == 15


class Stats:
    """Something with attributes."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


def test_recorder(folder, schema):
    from shmstats._shmstats import Recorder

    with Region.create(folder / "a", schema, 2) as region, region.claim(0) as server:
        ok, failed = (server.counter("requests", {"status": s}) for s in ("ok", "failed"))
        sent, engine = server.counter("bytes_sent"), server.snapshot("engine", {"engine": "0"})
        recorder = Recorder(
            {"good": ok, "inner": {"bad": failed, "sizes": [sent, sent]}},
            snapshot=engine,
            gauges=["running", ("stages", "usage")],
            watch=["special"],
        )
        inner = Stats(bad=2, sizes=[10, 20, 40])
        assert not recorder.record(Stats(good=1, inner=inner, running=4, stages={"usage": 0.5}))
        assert recorder.record(Stats(good=True, inner=None, special=1))
        assert not recorder.record(Stats(good=None, special=None, running=None, stages=None))
        inspector = region.inspector()
        assert list(inspector.totals().as_dict().values()) == [2, 2, 30]
        seen = inspector.observe()
        assert (seen.gauge("running", {"engine": "0"}), seen.gauge("usage", {"engine": "0"})) == (
            None,
            0,
        )

        class Broken:
            good = 5

            @property
            def inner(self) -> None:
                raise OSError

        for wrong, kind in ((Broken(), OSError), (Stats(good=5, inner=Stats(bad=-1)), ValueError),
                            (Stats(good=5, running="x"), TypeError)):  # fmt: skip
            with pytest.raises(kind):
                recorder.record(wrong)
        assert list(inspector.totals().as_dict().values()) == [2, 2, 30], "all of it, or nothing"
        with region.claim(1) as other, pytest.raises(ValueError):
            Recorder({"a": ok, "b": other.counter("bytes_sent")})
        with pytest.raises(ValueError):
            Recorder({})
        with pytest.raises(ValueError):
            Recorder({"a": ok}, gauges=["b"])
    assert not recorder.record(Stats(good=1)), "closed"


@pytest.mark.parametrize(
    "act, ours, builtin",
    [
        (lambda f, s: Region.open(f / "none"), "RegionNotFoundError", FileNotFoundError),
        (lambda f, s: Region.create(f / "a", s, 1), "RegionExistsError", FileExistsError),
        (lambda f, s: Region.open(f), "InvalidRegionError", ValueError),
        (lambda f, s: Region.create(f / "b", s, 0), "InvalidSchemaError", ValueError),
        (lambda f, s: Region.create(f / "no" / "b", s, 1), "RegionNotFoundError", OSError),
        (lambda f, s: shmstats.Schema("1x"), "InvalidSchemaError", ValueError),
        (lambda f, s: Region.open(f / "a").claim(99), "NoSuchSlotError", IndexError),
        (lambda f, s: Region.open(f / "a").claim(0), "HeldError", BlockingIOError),
        (lambda f, s: shmstats.Server.private(s).counter("x"), "NoSuchRecordError", KeyError),
        (lambda f, s: shmstats.Server.try_from_env(s), "EnvironmentVariableError", ValueError),
        (
            lambda f, s: Region.open_or_create(
                f / "a", shmstats.Schema("x", shmstats.CounterDef("y")), 1
            ),
            "SchemaMismatchError",
            ValueError,
        ),
    ],
)
def test_exceptions(folder, schema, monkeypatch, act, ours, builtin):
    monkeypatch.delenv("SHMSTATS_REGION", raising=False)
    region = Region.create(folder / "a", schema, 1)
    server = region.claim(0)
    with pytest.raises(builtin) as caught:
        act(folder, schema)
    assert type(caught.value).__name__ == ours
    assert isinstance(caught.value, shmstats.Error)
    assert not str(caught.value).startswith(("'", '"'))
    if isinstance(caught.value, OSError):
        assert caught.value.errno and caught.value.filename
    server.close()
    region.close()


def test_no_free_slot(folder, schema):
    with Region.create(folder / "a", schema, 1, slots=1) as region, region.claim_any():
        with pytest.raises(shmstats.NoFreeSlotError):
            region.claim_any()
        assert region.inspector().observe().refused_servers == 1


def test_what_is_closed_counts_nothing_and_says_so(folder, schema):
    region = Region.create(folder / "a", schema, 1)
    server = region.claim(0)
    counter, gauge = server.counter("bytes_sent"), server.gauge("load")
    snapshot = server.snapshot("engine", {"engine": "0"})
    server.close()
    server.close()
    # Stats must not break the code that counts.
    counter.add(1)
    counter.inc()
    gauge.set(1)
    snapshot.publish(running=1)
    with pytest.raises(shmstats.ClosedError):
        server.counter("bytes_sent")
    with region.claim(0) as again:
        assert again.slot == 0, "the slot was given back at once"
    region.close()
    for act in (lambda: region.path, region.primary, region.remove):
        with pytest.raises(ValueError):
            act()
    assert "closed" in repr(region) + repr(server) + repr(counter)


def test_remove(folder, schema):
    path = folder / "a"
    region = Region.create(path, schema, 1)
    server = region.claim(0)
    with pytest.raises(shmstats.HeldError):
        region.remove()
    server.close()
    Region.open(path).remove()
    assert not path.exists()


def test_one_handle_per_record(folder, schema):
    with Region.create(folder / "a", schema, 1) as region, region.claim(0) as server:
        # Of a single-writer counter there is one handle in Rust; here the GIL makes it one writer.
        server.counter("bytes_sent").add(1)
        server.counter("bytes_sent").add(1)
        server.snapshot("engine", {"engine": "0"}).publish(running=1)
        server.snapshot("engine", {"engine": "0"}).publish(usage=0.5)
        seen = region.inspector()
        assert seen.totals().get("bytes_sent") == 2
        assert seen.observe().gauge("running", {"engine": "0"}) == 1, "what is not given stays"


def test_a_forked_child_claims_a_slot_of_its_own(folder, schema):
    with Region.create(folder / "a", schema, 1, slots=4) as region:
        server = region.claim(0)
        counter, single = server.counter("requests", {"status": "ok"}), server.counter("bytes_sent")
        gauge, snapshot = server.gauge("workers"), server.snapshot("engine", {"engine": "0"})
        counter.add(1)
        gauge.set(1)

        def child() -> None:
            counter.add(10)
            single.add(10)
            gauge.set(10)
            snapshot.publish(running=10)
            assert server.slot != 0
            seen = region.inspector().observe()
            assert seen.gauge("workers") == 11, "both are alive"
            assert in_child(lambda: counter.add(100)) == 0

        assert in_child(child) == 0
        assert server.slot == 0
        single.add(1)
        inspector = region.inspector()
        totals = inspector.totals()
        assert totals.get("requests") == 111
        assert totals.get("bytes_sent") == 11
        assert sorted(totals.in_slot(slot, "requests") for slot in range(4)) == [0, 1, 10, 100]
        seen = inspector.observe()
        assert seen.gauge("workers") == 1, "the child's went with it"
        assert seen.gauge("running", {"engine": "0"}) == 10, "what it saw of the engine did not"
        server.close()


def test_a_forked_child_without_a_slot_goes_on_counting(folder, schema, caplog):
    with Region.create(folder / "a", schema, 1, slots=1) as region, region.claim(0) as server:
        counter, gauge = server.counter("requests", {"status": "ok"}), server.gauge("workers")
        gauge.set(1)

        def child() -> None:
            caplog.clear()
            counter.add(10)
            gauge.set(10)
            assert len(caplog.records) == 1 and "no slot of its own" in caplog.text

        assert in_child(child) == 0
        inspector = region.inspector()
        assert inspector.totals().get("requests") == 10
        assert inspector.observe().gauge("workers") == 1


def test_a_primary_in_a_forked_child_drains_nothing(folder, schema):
    with Region.create(folder / "a", schema, 1) as region, region.claim(0) as server:
        server.counter("bytes_sent").add(3)
        with region.primary() as primary:

            def child() -> None:
                assert primary.drain().is_idle
                with pytest.raises(shmstats.HeldError):
                    region.primary()

            assert in_child(child) == 0
            assert primary.drain().delta("bytes_sent") == 3


def test_threads(folder, schema):
    import threading

    with Region.create(folder / "a", schema, 1) as region, region.claim(0) as server:
        counter = server.counter("bytes_sent")
        threads = [
            threading.Thread(target=lambda: [counter.add(1) for _ in range(10_000)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert region.inspector().totals().get("bytes_sent") == 80_000


def test_from_env(folder, schema, monkeypatch, caplog):
    with Region.create(folder / "a", schema, 2):
        monkeypatch.setenv("SHMSTATS_REGION", str(folder / "a"))
        monkeypatch.setenv("SHMSTATS_SERVER_INDEX", "1")
        with shmstats.Server.from_env(schema) as server:
            assert (server.index, server.region.path) == (1, folder / "a")
    monkeypatch.setenv("SHMSTATS_REGION", str(folder / "none"))
    with shmstats.Server.from_env(schema) as server:
        server.counter("bytes_sent").add(1)
        assert server.region.is_private
    assert [record.name for record in caplog.records] == ["shmstats"]
    assert "counts for itself" in caplog.text


def test_join(folder, schema, caplog):
    with Region.create(folder / "a", schema, 2):
        with shmstats.Server.join(folder / "a", schema, index=1) as server:
            assert (server.index, server.slot) == (1, 1)
    with shmstats.Server.join(folder / "none", schema) as server:
        assert server.region.is_private
    assert "counts for itself" in caplog.text


def test_open_or_private(folder, schema, caplog):
    region = Region.open_or_private(folder / "no" / "a", schema, 1)
    assert region.is_private
    assert "no shared stats" in caplog.text


def test_unclosed_objects_do_not_matter(folder):
    code = """
import sys, shmstats
schema = shmstats.Schema("web", shmstats.CounterDef("requests"))
region = shmstats.Region.create(sys.argv[1], schema, 1)
server = region.claim(0)
counter = server.counter("requests")
primary = region.primary()
inspector = region.inspector()
buffer = shmstats.SharedStatsBuffer(2)
buffer.record(0, prompt_tokens=1)
counter.add(1)
class Late:
    def __init__(self): self.counter = counter
    def __del__(self): self.counter.add(1); buffer.close()
late = Late()
print("done")
"""
    start = time.monotonic()
    ran = python(code, str(folder / "a"), SHMSTATS_DIR=str(folder))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")
    assert time.monotonic() - start < 30
    assert list(folder.glob("stats-buffer-*")) == []


def test_objects_can_be_collected(folder, schema):
    region = Region.create(folder / "a", schema, 1)
    server = region.claim(0)
    counter = server.counter("bytes_sent")
    reference = weakref.ref(server)
    del server
    gc.collect()
    assert reference() is None
    counter.add(1)
    assert region.inspector().totals().get("bytes_sent") == 1, "a handle keeps the slot"
    del counter
    gc.collect()
    assert region.inspector().observe().states[0] == "released"


def test_leftovers(folder, schema):
    ran = python(
        """
import os, sys, shmstats
schema = shmstats.Schema("web", shmstats.CounterDef("requests"))
region = shmstats.Region.create(sys.argv[1], schema, 1)
os._exit(0)
""",
        str(folder / "job-dead.shmstats"),
    )
    assert ran.returncode == 0
    with Region.create(folder / "job-alive.shmstats", schema, 1):
        (folder / "job-other.shmstats").write_text("something else")
        kept = shmstats.remove_leftovers("job-", keep=lambda path: True)
        assert kept == []
        removed = shmstats.remove_leftovers("job-")
        assert removed == [folder / "job-dead.shmstats"]
        assert (folder / "job-other.shmstats").exists()


def test_inspector_needs_no_more_than_to_read(folder, schema):
    path = folder / "a"
    with Region.create(path, schema, 1) as region, region.claim(0) as server:
        server.counter("bytes_sent").add(1)
        path.chmod(0o400)
        with shmstats.Inspector(path) as inspector:
            assert inspector.totals().get("bytes_sent") == 1
            seen = inspector.observe()
            assert seen.owners[0].pid == os.getpid()
            assert (seen.owners[0].server_index, seen.states[0]) == (0, "alive")
            assert inspector.schema == schema
            assert inspector.is_at_its_path


def test_stubs_name_what_there_is():
    """Every class, method and property of the compiled half, and nothing else."""
    from shmstats import _shmstats

    stub = ast.parse(Path(_shmstats.__file__).with_name("_shmstats.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    closing = {
        node.name for node in classes.pop("_Closing").body if isinstance(node, ast.FunctionDef)
    }
    real = {name: kind for name, kind in vars(_shmstats).items() if isinstance(kind, type)}
    assert set(classes) == set(real)
    for name, node in classes.items():
        declared = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        if any(isinstance(base, ast.Name) and base.id == "_Closing" for base in node.bases):
            declared |= closing
        ignored = {"__new__", "__doc__", "__module__", "__repr__", "__eq__", "__weakref__"}
        ignored |= {"__hash__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}
        there = set(vars(real[name]))
        assert declared - {"__new__"} == there - ignored, name


def test_every_exception_is_an_error():
    names = [name for name in shmstats.__all__ if name.endswith("Error")]
    assert all(issubclass(getattr(shmstats, name), shmstats.Error) for name in names)


def test_command(folder, schema, capsys):
    import json

    from shmstats.__main__ import main

    path = folder / "a"
    with Region.create(path, schema, 2) as region, region.claim(1) as server:
        server.counter("bytes_sent").add(7)
        server.gauge("workers").set(2)
        assert main([str(path)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["servers"] == [{"slot": 1, "state": "alive", "pid": os.getpid(), "index": 1}]
    assert (said["totals"]["bytes_sent"], said["gauges"]) == (7, {"workers": 2})
    assert main([str(folder / "none")]) == 1
    assert main([]) == 2


def test_free_threaded_interpreters_are_refused():
    ran = python(
        """
import sysconfig
real = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else real(name)
import shmstats
"""
    )
    assert ran.returncode == 1
    assert "ImportError: shmstats relies on the GIL" in ran.stderr
