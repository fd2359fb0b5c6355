"""e2e.py FOLDER [SCENARIO…]: what the plugin counts and logs, against what clients and vLLM count.

Each scenario starts a vLLM of its own from FOLDER/venv with FOLDER/model, and leaves its log, its
intervals and what was compared in FOLDER/out.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import shmstats

INTERVAL = 2
START = 300
#: Microseconds that vLLM's own record() for Prometheus takes at most, when nothing else runs.
QUIET = 45
#: Region counters and the counters of vLLM's /metrics that they must equal, per engine.
SAME = {
    "prompt_tokens": "vllm:prompt_tokens_total",
    "prompt_tokens_cached": "vllm:prompt_tokens_cached_total",
    "prompt_tokens_computed": 'vllm:prompt_tokens_by_source_total{source="local_compute"}',
    "generation_tokens": "vllm:generation_tokens_total",
    "preemptions": "vllm:num_preemptions_total",
    "prefix_cache_queries": "vllm:prefix_cache_queries_total",
    "prefix_cache_hits": "vllm:prefix_cache_hits_total",
}
SAME_SPECULATIVE = {
    "spec_decode_drafts": "vllm:spec_decode_num_drafts_total",
    "spec_decode_draft_tokens": "vllm:spec_decode_num_draft_tokens_total",
    "spec_decode_accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total",
}
PREFIX = "the quick brown fox jumps over the lazy dog " * 6


def check(what: str, got: object, expected: object) -> None:
    mark = "ok" if got == expected else "WRONG"
    print(f"  {mark:5} {what}: {got}" + ("" if got == expected else f", expected {expected}"))
    if got != expected:
        raise AssertionError(what)


def hold(what: str, fact: bool, shown: object = "") -> None:
    print(f"  {'ok' if fact else 'WRONG':5} {what}{f': {shown}' if shown != '' else ''}")
    if not fact:
        raise AssertionError(what)


def wait_for(what: str, seconds: float, condition, pause: float = 0.05):
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(pause)
    return result


class Launch:
    """One `vllm serve`, in a process group of its own."""

    def __init__(self, folder: Path, name: str, regions: Path, port: int, *options: str) -> None:
        out = folder / "out"
        out.mkdir(exist_ok=True)
        self.name, self.port, self.regions = name, port, regions
        self.log_path, self.json_path = out / f"{name}.log", out / f"{name}.jsonl"
        self.json_path.unlink(missing_ok=True)
        environment = os.environ | {
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_LOG_STATS_INTERVAL": str(INTERVAL),
            "SHMSTATS_DIR": str(regions),
            "SHMSTATS_VLLM_JSON": str(self.json_path),
            "SHMSTATS_VLLM_LINES": "both",
            "SHMSTATS_VLLM_TIMING": "1",
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [
            str(folder / "venv/bin/vllm"), "serve", str(folder / "model"),
            "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port),
            "--max-model-len", "512", "--max-num-seqs", "8", "--enforce-eager",
            "--enable-prompt-tokens-details", "--block-size", "32", *options,
        ]  # fmt: skip
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def wait_until_up(self) -> None:
        async def healthy() -> bool:
            try:
                async with aiohttp.ClientSession() as session:
                    async with session.get(f"{self.url}/health") as reply:
                        return reply.status == 200
            except aiohttp.ClientError:
                return False

        def up() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"vLLM ended at its start: see {self.log_path}")
            return asyncio.run(healthy())

        wait_for("vLLM answers", START, up, 0.3)
        pattern = f"vllm-{self.process.pid}-*.shmstats"
        self.region = wait_for("a region", 10, lambda: next(self.regions.glob(pattern), None))
        # Mapped from here on: it can be read when the file is gone.
        self.inspector = shmstats.Inspector(self.region)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    @property
    def totals(self) -> dict[str, int]:
        totals = self.inspector.totals()
        assert totals.settled
        return {name: n for name, n in totals.as_dict().items() if n}

    @property
    def intervals(self) -> list[dict]:
        if not self.json_path.exists():
            return []
        return [json.loads(line) for line in self.json_path.read_text().splitlines()]

    @property
    def deltas(self) -> dict[str, int]:
        """Of all intervals together."""
        sums: Counter[str] = Counter()
        for interval in self.intervals:
            sums.update(interval["deltas"])
        return dict(sums)

    def metrics(self) -> dict[tuple[str, frozenset], float]:
        async def scrape() -> str:
            async with aiohttp.ClientSession() as session:
                async with session.get(f"{self.url}/metrics") as reply:
                    return await reply.text()

        rows = {}
        for line in asyncio.run(scrape()).splitlines():
            if match := re.fullmatch(r"(vllm:\w+)\{(.*)\} ([0-9.e+-]+)", line):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2]))
                labels.pop("model_name", None)
                rows[match[1], frozenset(labels.items())] = float(match[3])
        return rows

    def settle(self) -> None:
        """Until nothing runs, by our account, and no count moves, by vLLM's and by ours."""
        last: object = None

        def still() -> bool:
            nonlocal last
            rows = self.metrics()
            counts = {key: n for key, n in rows.items() if key[0].endswith("_total")}
            now = (counts, self.totals)
            moved, last = now != last, now
            return running(self.gauges()) == 0 and not moved

        wait_for("vLLM is idle", 30, still, 0.5)
        # Its gauge adds up what each server saw last, or takes one of them.
        rows = self.metrics()
        stale = sum(n for (name, _), n in rows.items() if name == "vllm:num_requests_running")
        if stale:
            print(f"  note  vLLM's own num_requests_running still says {stale:.0f}")

    def gauges(self) -> dict[str, float]:
        return self.inspector.observe().gauges

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.wait_until_gone()

    def wait_until_gone(self) -> None:
        self.process.wait(60)

        def gone() -> bool:
            try:
                os.killpg(self.process.pid, 0)
                return False
            except ProcessLookupError:
                return True

        wait_for("its process group is empty", 30, gone)

    def kill(self) -> None:
        """Whatever state it is in."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class Client:
    """Counts tokens by vLLM's answers."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.answers = self.prompt = self.cached = self.completion = 0
        self.left = self.seen_before_leaving = 0

    def body(self, number: int, tokens: int, **more: object) -> dict:
        prompt = f"{PREFIX * (1 + number % 2)}{number}"
        return {
            "model": "tiny", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True,
            "temperature": 0, **more,
        }  # fmt: skip

    async def _ask(self, number: int, tokens: int) -> None:
        # A connection per request, so that the kernel spreads them over the servers.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            url = f"{self.launch.url}/v1/completions"
            async with session.post(url, json=self.body(number, tokens)) as reply:
                assert reply.status == 200, await reply.text()
                usage = (await reply.json())["usage"]
        self.answers += 1
        self.prompt += usage["prompt_tokens"]
        self.cached += (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        self.completion += usage["completion_tokens"]

    async def _leave(self, number: int, tokens: int, after: int) -> None:
        """Hangs up after so many pieces of a streamed answer."""
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            url = f"{self.launch.url}/v1/completions"
            body = self.body(number, tokens, stream=True)
            async with session.post(url, json=body) as reply:
                assert reply.status == 200, await reply.text()
                pieces = 0
                async for line in reply.content:
                    pieces += line.startswith(b"data: {")
                    if pieces >= after:
                        break
                self.left += 1
                self.seen_before_leaving += pieces

    def run(self, requests: int, *, leavers: int = 0, tokens: int = 40, at_once: int = 6) -> None:
        async def everyone() -> None:
            gate = asyncio.Semaphore(at_once)

            async def one(number: int) -> None:
                async with gate:
                    await self._ask(number, tokens)

            async def leaver(number: int) -> None:
                async with gate:
                    await self._leave(number, 200, 5)

            jobs = [one(i) for i in range(requests)] + [leaver(i) for i in range(leavers)]
            await asyncio.gather(*jobs)

        asyncio.run(everyone())


def total(totals: dict[str, int], name: str) -> int:
    return sum(n for series, n in totals.items() if series.split("{")[0] == name)


def running(gauges: dict[str, float]) -> float:
    return sum(n for name, n in gauges.items() if name.startswith("running_requests"))


def compare_with_metrics(launch: Launch, engines: int, same: dict[str, str]) -> None:
    rows, totals = launch.metrics(), launch.totals
    for ours, theirs in same.items():
        name, _, labels = theirs.partition("{")
        extra = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        for engine in map(str, range(engines)):
            key = (name, frozenset((extra | {"engine": engine}).items()))
            got = totals.get(f'{ours}{{engine="{engine}"}}', 0)
            check(f"{ours} of engine {engine} = {theirs}", got, int(rows.get(key, 0)))


def compare_with_client(launch: Launch, client: Client) -> None:
    totals = launch.totals
    check("prompt tokens = the client's", total(totals, "prompt_tokens"), client.prompt)
    check("cached ones = the client's", total(totals, "prompt_tokens_cached"), client.cached)
    computed = total(totals, "prompt_tokens_computed")
    check("computed ones = the rest", computed, client.prompt - client.cached)
    check("generated tokens = the client's", total(totals, "generation_tokens"), client.completion)


def both_servers_count(launch: Launch) -> None:
    totals = launch.inspector.totals()
    shares = [totals.in_slot(slot, "generation_tokens") for slot in range(2)]
    hold("both servers count", all(shares), shares)


def nothing_runs(launch: Launch) -> None:
    gauges = launch.gauges()
    waiting = sum(n for name, n in gauges.items() if name.startswith("waiting_requests"))
    check("running and waiting at the end", (running(gauges), waiting), (0, 0))


def lines_add_up(launch: Launch) -> None:
    """After the end: the intervals of all lines are the region's totals."""
    check("the sum of all intervals = the region's totals", launch.deltas, launch.totals)
    hold("the region went with its launch", not launch.region.exists())
    lines = re.findall(r"INFO .*All 2 API Servers: Avg prompt throughput", launch.log)
    hold("lines at INFO", len(lines) > 0, len(lines))
    # Each server says it for all its calls so far; the last says it for all.
    numbers = r"([0-9.]+) us \(p50\), ([0-9.]+) us \(p99\)"
    timed = dict(re.findall(r"(ApiServer_\d) .*record\(\) took (.*)", launch.log))
    for server, text in sorted(timed.items()):
        (ours, _), (theirs, _) = re.findall(numbers, text)
        # On a busy machine both take longer; vLLM's own takes up to QUIET on one that is not.
        limit = 10 * max(1, float(theirs) / QUIET)
        shown = f"{ours} us, vLLM's own for Prometheus {theirs} us"
        hold(f"record() of {server} under {limit:.0f} us (p50)", float(ours) < limit, shown)
    for word in ("Traceback", "serving goes on", "incomplete one"):
        hold(f"no {word!r} of ours in the log", not re.search(rf"shmstats.*{word}", launch.log))


@contextmanager
def region_folder():
    with tempfile.TemporaryDirectory(prefix="shmstats-e2e-", dir="/dev/shm") as folder:
        yield Path(folder)


@contextmanager
def started(folder: Path, name: str, *options: str, port: int = 8123):
    with region_folder() as regions:
        launch = Launch(folder, name, regions, port, *options)
        try:
            launch.wait_until_up()
            yield launch
        finally:
            launch.kill()


def two_servers(folder: Path) -> None:
    """Two API servers; then clients that hang up; the end in the middle of an interval."""
    with started(folder, "two_servers", "--api-server-count", "2") as launch:
        client = Client(launch)
        client.run(60)
        launch.settle()
        compare_with_client(launch, client)
        compare_with_metrics(launch, 1, SAME)
        both_servers_count(launch)
        nothing_runs(launch)
        hold("some prompt tokens were cached", client.cached > 0, client.cached)

        client.run(20, leavers=12)
        launch.settle()
        compare_with_metrics(launch, 1, SAME)
        generated = total(launch.totals, "generation_tokens")
        least = client.completion + client.seen_before_leaving
        most = client.completion + client.left * 200
        hold("with clients that hang up: generated within bounds", least <= generated < most,
             f"{least} <= {generated} < {most}")  # fmt: skip
        nothing_runs(launch)

        # The last that an engine does is to drop requests: it must not seem to go on with them.
        client.run(0, leavers=8)
        launch.settle()
        nothing_runs(launch)

        before = len(launch.intervals)
        wait_for("a line", 3 * INTERVAL, lambda: len(launch.intervals) > before)
        client.run(6, tokens=8)
        launch.settle()
        launch.stop()
        hold("the launcher told the rest", launch.intervals[-1]["rank"] is None)
        lines_add_up(launch)


def data_parallel(folder: Path) -> None:
    """Two engines, and so two API servers without asking for them."""
    with started(folder, "data_parallel", "--data-parallel-size", "2") as launch:
        client = Client(launch)
        client.run(60)
        launch.settle()
        compare_with_client(launch, client)
        compare_with_metrics(launch, 2, SAME)
        both_servers_count(launch)
        nothing_runs(launch)
        launch.stop()
        lines_add_up(launch)
        for engine in ("Engine 000: ", "Engine 001: "):
            hold(f"lines of {engine!r}", f"] {engine}Avg prompt throughput" in launch.log)


def speculative(folder: Path) -> None:
    """Speculative decoding by n-grams."""
    config = {
        "method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3,
        "prompt_lookup_min": 1,
    }  # fmt: skip
    options = ("--api-server-count", "2", "--speculative-config", json.dumps(config))
    with started(folder, "speculative", *options) as launch:
        client = Client(launch)
        client.run(60)
        launch.settle()
        compare_with_client(launch, client)
        compare_with_metrics(launch, 1, SAME | SAME_SPECULATIVE)
        drafts = total(launch.totals, "spec_decode_drafts")
        hold("there were drafts", drafts > 0, drafts)
        positions = total(launch.totals, "spec_decode_accepted_tokens_per_position")
        accepted = total(launch.totals, "spec_decode_accepted_tokens")
        check("accepted tokens over all positions", positions, accepted)
        nothing_runs(launch)
        launch.stop()
        lines_add_up(launch)
        hold("SpecDecoding line", "SpecDecoding metrics: Mean acceptance length" in launch.log)


def two_launches(folder: Path) -> None:
    """Started together, with one folder for their regions: they never mix."""
    with region_folder() as regions:
        options = ("--api-server-count", "2")
        # The first lets its servers end in peace; the second kills them, as is vLLM's default.
        launches = [
            Launch(folder, "launch_0", regions, 8123, *options, "--shutdown-timeout", "20"),
            Launch(folder, "launch_1", regions, 8124, *options),
        ]
        try:
            for launch in launches:
                launch.wait_until_up()
            check("regions", len(list(regions.glob("*.shmstats"))), 2)
            clients = [Client(launch) for launch in launches]
            clients[0].run(30)
            clients[1].run(20, tokens=17)
            for launch, client in zip(launches, clients):
                launch.settle()
                compare_with_client(launch, client)
                compare_with_metrics(launch, 1, SAME)
            clients[0].run(4, tokens=8)
            launches[0].settle()
            for launch in launches:
                launch.stop()
                lines_add_up(launch)
            hold("a server told the rest itself", launches[0].intervals[-1]["rank"] is not None)
        finally:
            for launch in launches:
                launch.kill()


def killed_server(folder: Path) -> None:
    """kill -9 of the primary under load: vLLM's launcher takes the launch down."""
    with started(folder, "killed_server", "--api-server-count", "2") as launch:
        client = Client(launch)
        client.run(30)
        launch.settle()
        before = launch.totals
        primary = launch.inspector.observe().primary_pid

        async def load_until_it_breaks() -> None:
            jobs = [asyncio.create_task(client._ask(i, 300)) for i in range(8)]
            grown = total(before, "generation_tokens") + 50
            while total(launch.totals, "generation_tokens") < grown:
                await asyncio.sleep(0.01)
            os.kill(primary, signal.SIGKILL)
            await asyncio.gather(*jobs, return_exceptions=True)

        asyncio.run(load_until_it_breaks())
        launch.wait_until_gone()
        hold("the launch went down", launch.process.returncode != 0, launch.process.returncode)
        totals, deltas = launch.totals, launch.deltas
        hold("no total went down", all(totals.get(name, 0) >= n for name, n in before.items()))
        generated = total(totals, "generation_tokens")
        hold("what clients got was counted", generated >= client.completion,
             f"{generated} >= {client.completion}")  # fmt: skip
        hold("lines say no more than the totals",
             all(n <= totals.get(name, 0) for name, n in deltas.items()))  # fmt: skip
        logged = total(deltas, "generation_tokens")
        hold("lines say at least what was settled before",
             logged >= total(before, "generation_tokens"), f"{logged} of {generated}")  # fmt: skip
        hold("the region went with its launch", not launch.region.exists())


SCENARIOS = [two_servers, data_parallel, speculative, two_launches, killed_server]


def main() -> int:
    folder, wanted = Path(sys.argv[1]).resolve(), sys.argv[2:]
    failed = []
    for scenario in SCENARIOS:
        if wanted and scenario.__name__ not in wanted:
            continue
        start = time.monotonic()
        print(f"{scenario.__name__}: {scenario.__doc__}", flush=True)
        try:
            scenario(folder)
        except Exception as error:
            failed.append(scenario.__name__)
            print(f"  FAILED: {error!r}")
        print(f"  {time.monotonic() - start:.0f} s", flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
