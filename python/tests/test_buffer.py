from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import threading
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Semaphore

import pytest
import shmstats
from conftest import in_child, python
from shmstats import SharedStatsBuffer

METHODS = multiprocessing.get_all_start_methods()
ZERO = {
    "total_prompt_tokens": 0,
    "total_generation_tokens": 0,
    "total_preemptions": 0,
    "total_corrupted_reqs": 0,
    "total_running_reqs": 0,
    "total_waiting_reqs": 0,
    "avg_kv_cache_usage": 0.0,
    "avg_cpu_cache_usage": 0.0,
}


@pytest.fixture
def buffer(folder):
    with SharedStatsBuffer(4) as buffer:
        yield buffer
    assert list(folder.iterdir()) == [], "the file is gone"


def test_nothing_yet(buffer):
    assert buffer.get_aggregated_stats() == ZERO


def test_counts_add_up_and_are_read_once(buffer):
    buffer.record(0, prompt_tokens=100, generation_tokens=50)
    buffer.record(1, prompt_tokens=200, generation_tokens=75, preemptions=1)
    buffer.record(1, corrupted_reqs=2)
    kept = buffer.get_aggregated_stats(reset_counters=False)
    assert kept == buffer.get_aggregated_stats(reset_counters=False)
    stats = buffer.get_aggregated_stats()
    assert stats == kept
    assert stats == ZERO | {
        "total_prompt_tokens": 300,
        "total_generation_tokens": 125,
        "total_preemptions": 1,
        "total_corrupted_reqs": 2,
    }
    assert buffer.get_aggregated_stats() == ZERO


def test_gauges_replace_each_alone(buffer):
    buffer.record(0, running_reqs=5, waiting_reqs=2, kv_cache_usage=0.5)
    buffer.record(1, running_reqs=3, kv_cache_usage=0.7, cpu_cache_usage=0.0)
    buffer.record(0, running_reqs=4)
    stats = buffer.get_aggregated_stats()
    assert (stats["total_running_reqs"], stats["total_waiting_reqs"]) == (7, 2)
    assert stats["avg_kv_cache_usage"] == pytest.approx(0.6), "over those that reported"
    assert stats["avg_cpu_cache_usage"] == 0.0, "zero is a report"
    assert buffer.get_aggregated_stats()["total_running_reqs"] == 7, "gauges are not reset"
    assert isinstance(stats["total_running_reqs"], int)


def test_reset(buffer):
    buffer.record(0, prompt_tokens=1, running_reqs=5, kv_cache_usage=0.5)
    buffer.reset()
    assert buffer.get_aggregated_stats() == ZERO
    buffer.record(0, waiting_reqs=1)
    assert buffer.get_aggregated_stats() == ZERO | {"total_waiting_reqs": 1}


def test_wrong_arguments_record_nothing(buffer):
    for arguments, stats, kind in (
        ((4,), {}, IndexError),
        ((-1,), {}, IndexError),
        ((0,), {"prompt_tokens": 1, "walking_reqs": 1}, TypeError),
        ((0,), {"prompt_tokens": 1, "preemptions": -1}, ValueError),
        ((0,), {"prompt_tokens": 1, "running_reqs": -1}, ValueError),
        ((0,), {"prompt_tokens": 1, "kv_cache_usage": float("nan")}, ValueError),
        ((0,), {"prompt_tokens": 1.5}, TypeError),
        ((0,), {"prompt_tokens": 1, "kv_cache_usage": "full"}, TypeError),
    ):
        with pytest.raises(kind):
            buffer.record(*arguments, **stats)
    assert buffer.get_aggregated_stats() == ZERO
    with pytest.raises(ValueError):
        SharedStatsBuffer(0)
    with pytest.raises(OverflowError):
        SharedStatsBuffer(-1)


def _work(buffer: SharedStatsBuffer, index: int, done: object = None) -> None:
    for _ in range(1000):
        buffer.record(index, prompt_tokens=2, generation_tokens=1)
        # Two processes may record for one index.
        buffer.record(3, preemptions=1)
    buffer.record(index, running_reqs=index + 1, kv_cache_usage=0.5)


@pytest.mark.parametrize("method", METHODS)
def test_processes(buffer, method):
    context = multiprocessing.get_context(method)
    buffer.record(3, prompt_tokens=1)
    processes = [context.Process(target=_work, args=(buffer, index)) for index in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    stats = buffer.get_aggregated_stats()
    assert stats["total_prompt_tokens"] == 6001
    assert stats["total_generation_tokens"] == 3000
    assert stats["total_preemptions"] == 3000
    assert stats["total_running_reqs"] == 6, "gauges outlive the process that set them"
    assert stats["avg_kv_cache_usage"] == 0.5


@pytest.mark.skipif("fork" not in METHODS, reason="needs fork")
def test_a_local_function_under_fork(buffer):
    def work() -> None:
        buffer.record(0, prompt_tokens=5)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert buffer.get_aggregated_stats()["total_prompt_tokens"] == 5


def test_newest_value_wins_wherever_it_was_set(buffer):
    buffer.record(0, running_reqs=1, waiting_reqs=9)
    assert in_child(lambda: buffer.record(0, running_reqs=2)) == 0
    stats = buffer.get_aggregated_stats()
    assert (stats["total_running_reqs"], stats["total_waiting_reqs"]) == (2, 9)
    buffer.record(0, running_reqs=3)
    assert buffer.get_aggregated_stats()["total_running_reqs"] == 3


def test_any_process_aggregates(buffer):
    buffer.record(0, prompt_tokens=7)

    def child() -> None:
        assert buffer.get_aggregated_stats()["total_prompt_tokens"] == 7
        assert buffer.get_aggregated_stats()["total_prompt_tokens"] == 0
        buffer.record(1, prompt_tokens=1)

    assert in_child(child) == 0
    assert buffer.get_aggregated_stats()["total_prompt_tokens"] == 1


def test_aggregating_at_once_takes_everything_once(buffer):
    """Two processes aggregate while two record: each count is in exactly one answer."""
    context = multiprocessing.get_context("fork")
    sums, stop = context.Queue(), context.Event()

    def aggregate() -> None:
        total = 0
        while not stop.is_set():
            total += buffer.get_aggregated_stats()["total_prompt_tokens"]
        sums.put(total)

    def record() -> None:
        for _ in range(20_000):
            buffer.record(0, prompt_tokens=1)

    readers = [context.Process(target=aggregate) for _ in range(2)]
    writers = [context.Process(target=record) for _ in range(2)]
    for process in [*readers, *writers]:
        process.start()
    for process in writers:
        process.join(60)
    stop.set()
    total = sum(sums.get(timeout=60) for _ in readers)
    for process in readers:
        process.join(60)
    assert total + buffer.get_aggregated_stats()["total_prompt_tokens"] == 40_000


def test_a_killed_process_blocks_nobody(buffer):
    ready, wait = os.pipe()

    def child() -> None:
        buffer.record(0, prompt_tokens=3, running_reqs=1)
        os.write(wait, b".")
        while True:
            buffer.record(1, generation_tokens=1)

    pid = os.fork()
    if pid == 0:
        child()
    os.read(ready, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    stats = buffer.get_aggregated_stats()
    assert (stats["total_prompt_tokens"], stats["total_running_reqs"]) == (3, 1)
    buffer.record(0, prompt_tokens=1)
    assert buffer.get_aggregated_stats()["total_prompt_tokens"] == 1


def test_more_processes_than_slots_keep_their_counts(folder):
    """They are recorded as soon as there is a slot, at the latest when the buffer is closed."""
    with SharedStatsBuffer(1) as buffer:
        slots = shmstats.Inspector(buffer.path).slot_count
        context = multiprocessing.get_context("fork")
        ready = context.Semaphore(0)

        def child(go: Semaphore) -> None:
            buffer.record(0, prompt_tokens=1, running_reqs=1)
            ready.release()
            assert go.acquire(timeout=60)
            buffer.close()

        def start(count: int) -> tuple[Semaphore, list[BaseProcess]]:
            go = context.Semaphore(0)
            processes = [context.Process(target=child, args=(go,)) for _ in range(count)]
            for process in processes:
                process.start()
            for _ in processes:
                assert ready.acquire(timeout=60)
            return go, processes

        def finish(go: Semaphore, processes: list[BaseProcess]) -> None:
            for _ in processes:
                go.release()
            for process in processes:
                process.join(60)
                assert process.exitcode == 0

        first, late = start(slots), start(3)
        assert buffer.get_aggregated_stats(reset_counters=False)["total_prompt_tokens"] == slots
        finish(*first)
        finish(*late)
        stats = buffer.get_aggregated_stats()
        assert (stats["total_prompt_tokens"], stats["total_running_reqs"]) == (slots + 3, 1)


def test_threads(buffer):
    def work(index: int) -> None:
        for _ in range(5000):
            buffer.record(index, prompt_tokens=1, running_reqs=1)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = buffer.get_aggregated_stats()
    assert (stats["total_prompt_tokens"], stats["total_running_reqs"]) == (20_000, 4)


def test_the_last_one_out_removes_the_file(folder):
    buffer = SharedStatsBuffer(2)
    path = buffer.path
    other = pickle.loads(pickle.dumps(buffer))
    assert (other.path, other.num_servers) == (path, 2)
    other.record(0, prompt_tokens=1)
    buffer.close()
    assert path.exists()
    assert other.get_aggregated_stats()["total_prompt_tokens"] == 1
    del other
    gc.collect()
    assert not path.exists()
    with pytest.raises(shmstats.ClosedError):
        buffer.record(0)


def test_a_child_goes_on_when_the_parent_has_closed(folder):
    buffer = SharedStatsBuffer(2)
    path = buffer.path
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(ready[1], b".")
        os.read(go[0], 1)
        buffer.record(0, prompt_tokens=5)
        good = path.exists() and buffer.get_aggregated_stats()["total_prompt_tokens"] == 5
        buffer.close()
        os._exit(0 if good and not path.exists() else 1)
    os.read(ready[0], 1)
    buffer.close()
    os.write(go[1], b".")
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_left_behind(folder, method):
    code = f"""
import multiprocessing, sys
from shmstats import SharedStatsBuffer

def work(buffer):
    buffer.record(0, prompt_tokens=1)

if __name__ == "__main__":
    buffer = SharedStatsBuffer(2)
    process = multiprocessing.get_context("{method}").Process(target=work, args=(buffer,))
    process.start()
    # No join: multiprocessing does it at exit.
"""
    script = folder.parent / f"{folder.name}.py"
    script.write_text(code)
    try:
        ran = python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
        assert (ran.returncode, ran.stderr) == (0, "")
        assert list(folder.iterdir()) == []
    finally:
        script.unlink()


def test_leftovers_of_the_killed_are_collected(folder):
    ran = python(
        "import os, signal; from shmstats import SharedStatsBuffer; b = SharedStatsBuffer(2);"
        "b.record(0, prompt_tokens=1); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert ran.returncode == -signal.SIGKILL
    assert len(list(folder.iterdir())) == 1
    with SharedStatsBuffer(2) as buffer:
        assert list(folder.iterdir()) == [buffer.path]


def test_another_size_is_refused(folder):
    with SharedStatsBuffer(2) as buffer, pytest.raises(shmstats.SchemaMismatchError):
        SharedStatsBuffer._make(buffer.path, 3, False)
