"""vLLM's stat-logger plugin. Only vLLM imports this module.

Whatever goes wrong in here is logged once, and serving goes on: an exception that left `record`
would fail every request, one that left `log` would end all periodic lines, and one that left
`__init__` would end the launch.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import time
from operator import attrgetter
from typing import Any

from vllm.logger import init_logger
from vllm.v1.metrics import loggers
from vllm.v1.metrics.loggers import AggregateStatLoggerBase

from .. import __version__
from .fields import CACHE_PARTS, Style
from .launch import is_switched_off, region_of_this_server
from .report import Settings
from .stats import ServerStats

logger = init_logger("vllm.shmstats")

#: The attribute of scheduler stats that says when their engine sent them.
STAMP = "shmstats_sent_at"
#: Calls that are timed at most.
MOST_TIMES = 100_000


def _must_pass(error: BaseException) -> bool:
    """Whether an exception is no fault of ours. A panic of the compiled half is no `Exception`."""
    return isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError))


class StatLogger(AggregateStatLoggerBase):  # type: ignore[misc]
    """Records what this API server learns; the primary logs for all of them."""

    def __init__(self, vllm_config: Any, engine_indexes: list[int]) -> None:
        self._stats: ServerStats | None = None
        self._own: _OwnLines
        self._failures: set[str] = set()
        #: Nanoseconds that calls took, if they are timed.
        self._times: list[int] | None = None
        self._times_of_vllm: list[int] = []
        try:
            self._start(vllm_config, engine_indexes)
        except BaseException as error:
            self._failed("__init__", error)

    def _start(self, vllm_config: Any, engine_indexes: list[int]) -> None:
        parallel = vllm_config.parallel_config
        count = getattr(parallel, "_api_process_count", 1)
        rank = getattr(parallel, "_api_process_rank", 0)
        if is_switched_off() or count < 2 or rank < 0:
            return
        if hasattr(loggers, "MultiServerLoggingStatLogger"):
            if rank == 0:
                logger.info("shmstats stays silent: this vLLM prints a line for all servers itself")
            return
        own = _OwnLines(vllm_config, rank)
        style = _style(vllm_config, own)
        settings = Settings.from_env(logger.warning)
        stats = ServerStats(
            region_of_this_server(),
            rank=rank,
            count=count,
            engines=engine_indexes,
            logger=logger,
            style=style,
            settings=settings,
        )
        if style.missing:
            stats.say_once(
                "missing",
                "this vLLM does not tell %s; what needs it is left out of the lines",
                ", ".join(sorted(style.missing)),
            )
        if settings.timing:
            self._times = []
            self._times_of_vllm = _time_prometheus()
        _stamp_messages()
        self._stats, self._own = stats, own
        atexit.register(self._stop)

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        if self._stats is None:
            return
        start = time.perf_counter_ns() if self._times is not None else 0
        try:
            at = None if scheduler_stats is None else self._engine_time(scheduler_stats)
            if self._stats.record(scheduler_stats, iteration_stats, mm_cache_stats, engine_idx, at):
                self._own.record(scheduler_stats, engine_idx)
        except BaseException as error:
            self._failed("record", error)
        if self._times is not None and len(self._times) < MOST_TIMES:
            self._times.append(time.perf_counter_ns() - start)

    def _engine_time(self, scheduler_stats: Any) -> int | None:
        """When the engine sent these stats, in nanoseconds of its monotonic clock."""
        seconds = getattr(scheduler_stats, STAMP, None)
        if seconds is not None:
            return int(seconds * 1e9)
        if self._stats is not None:
            self._stats.say_once(
                "time",
                "this vLLM does not show when an engine reported; running and waiting are those "
                "that some server saw last",
            )
        return None

    def log(self) -> None:
        if self._stats is None:
            return
        try:
            self._stats.tick()
            self._own.log()
            self._say_times()
        except BaseException as error:
            self._failed("log", error)

    def log_engine_initialized(self) -> None:
        pass

    def _stop(self) -> None:
        stats, self._stats = self._stats, None
        if stats is None:
            return
        try:
            self._own.log()
            self._say_times()
            stats.close()
        except BaseException as error:
            self._failed("stop", error)

    def _say_times(self) -> None:
        if not self._times:
            return
        parts = []
        for times in (self._times, self._times_of_vllm):
            ordered = sorted(times) or [0]
            parts += [ordered[int(len(ordered) * part)] / 1000 for part in (0.5, 0.99)]
        logger.info(
            "shmstats: record() took %.1f us (p50), %.1f us (p99); vLLM's own for Prometheus "
            "%.1f us (p50), %.1f us (p99); over %d calls",
            *parts,
            len(self._times),
        )

    def _failed(self, where: str, error: BaseException) -> None:
        if _must_pass(error):
            raise error
        if where in self._failures:
            return
        self._failures.add(where)
        try:
            logger.warning(
                "shmstats %s: no stats line for all API servers, or an incomplete one (%s: %r); "
                "serving goes on",
                __version__,
                where,
                error,
            )
        except Exception:
            pass


def _stamp_messages() -> None:
    """Lets scheduler stats carry the time at which their engine sent them.

    Each step of an engine reports to one server, and servers get to their messages in an order of
    their own: by when a server reads it, an old report could pass for the newest, and stay it while
    the engine is idle. vLLM has the time in the message and does not pass it on to loggers. So it
    is copied where messages are taken in; a message always gets through, stamped or not.
    """
    try:
        from vllm.v1.engine.core_client import AsyncMPClient

        receive = AsyncMPClient.get_output_async
    except (ImportError, AttributeError):
        return
    if not inspect.iscoroutinefunction(receive) or hasattr(receive, STAMP):
        return

    @functools.wraps(receive)
    async def get_output_async(*args: Any, **kwargs: Any) -> Any:
        message = await receive(*args, **kwargs)
        try:
            if (stats := message.scheduler_stats) is not None:
                setattr(stats, STAMP, message.timestamp)
        except Exception:
            pass  # `_engine_time` will miss it, and say so.
        return message

    setattr(get_output_async, STAMP, True)
    AsyncMPClient.get_output_async = get_output_async


def _time_prometheus() -> list[int]:
    """For comparison, when asked to time ourselves: how long vLLM's Prometheus logger takes."""
    times: list[int] = []
    record = loggers.PrometheusStatLogger.record

    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter_ns()
        try:
            return record(self, *args, **kwargs)
        finally:
            if len(times) < MOST_TIMES:
                times.append(time.perf_counter_ns() - start)

    loggers.PrometheusStatLogger.record = timed
    return times


class _OwnLines:
    """Lines that cannot be merged over servers: each server logs its own, with its own prefix.

    KV and EC connectors report in dicts of their own making. vLLM's logger for one server keeps
    the helpers; it is used for nothing else.
    """

    def __init__(self, vllm_config: Any, rank: int) -> None:
        self._prefix = f"API Server {rank}: "
        self.helper: Any = None
        self._observers: list[tuple[str, Any]] = []
        try:
            self.helper = loggers.LoggingStatLogger(vllm_config)
        except Exception as error:
            logger.warning("shmstats: lines of connectors are left out: %r", error)
            return
        for attribute, stats in (
            ("kv_connector_logging", "kv_connector_stats"),
            ("ec_connector_logging", "ec_connector_stats"),
            ("cudagraph_logging", "cudagraph_stats"),
        ):
            if (observer := getattr(self.helper, attribute, None)) is not None:
                self._observers.append((stats, observer))

    def record(self, scheduler_stats: Any, engine_idx: int) -> None:
        for name, observer in self._observers:
            if stats := getattr(scheduler_stats, name, None):
                observer.observe(stats)
        if getattr(scheduler_stats, "iteration_details", None) is not None and self.helper:
            # Of one step of one engine, and so of one server: it needs no merging.
            self.helper._log_iteration_details(scheduler_stats, engine_idx)

    def log(self) -> None:
        for _, observer in self._observers:
            observer.log(log_fn=self._say)

    def _say(self, message: str, *args: Any) -> None:
        logger.info(self._prefix + message, *args)


def _style(vllm_config: Any, own: _OwnLines) -> Style:
    import vllm.envs as envs

    device = getattr(own.helper, "kv_cache_device", None)
    if device is None:
        kind = getattr(vllm_config.device_config, "device_type", "gpu")
        device = "GPU" if kind == "cuda" else str(kind).upper()
    speculative = getattr(vllm_config, "speculative_config", None)
    spec_logging = getattr(own.helper, "spec_decoding_logging", None)
    return Style(
        device=device,
        corrupted=bool(getattr(envs, "VLLM_COMPUTE_NANS_IN_LOGITS", False)),
        missing=_missing(),
        positions=int(getattr(speculative, "num_speculative_tokens", 0) or 0),
        is_diffusion=bool(getattr(spec_logging, "is_diffusion", False)),
    )


#: What a figure of the lines is made of. Where one is missing, the figure is left out.
_ITERATION = {
    "prompt_token_stats": ("prompt_token_stats.computed",),
    "num_generation_tokens": ("num_generation_tokens",),
    "num_corrupted_reqs": ("num_corrupted_reqs",),
}
_SCHEDULER = {
    "num_running_reqs": ("num_running_reqs",),
    "num_waiting_reqs": ("num_waiting_reqs",),
    "kv_cache_usage": ("kv_cache_usage",),
    "prefix_cache_stats": tuple(f"prefix_cache_stats.{part}" for part in CACHE_PARTS),
}


def _missing() -> frozenset[str]:
    """Which figures this version of vLLM does not give: its stats are no stable interface."""
    from vllm.v1.metrics.stats import IterationStats, SchedulerStats

    missing: set[str] = set()
    for example, figures in ((IterationStats(), _ITERATION), (SchedulerStats(), _SCHEDULER)):
        for figure, paths in figures.items():
            try:
                attrgetter(*paths)(example)
            except AttributeError:
                missing.add(figure)
    return frozenset(missing)
