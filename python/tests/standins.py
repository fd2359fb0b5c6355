"""Stand-ins for vLLM's stats classes and for the modules that the plugin imports."""

from __future__ import annotations

import asyncio
import logging
import sys
import types
from dataclasses import dataclass, field
from typing import Any


@dataclass
class CacheStats:
    requests: int = 0
    queries: int = 0
    hits: int = 0
    reset: bool = False


@dataclass
class SpecDecodingStats:
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_tokens_per_pos: list[int] = field(default_factory=list)


@dataclass
class SchedulerStats:
    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    num_skipped_waiting_reqs: int = 0
    kv_cache_usage: float = 0.0
    num_kv_fetch_reqs_by_stage: dict[str, int] = field(default_factory=dict)
    prefix_cache_stats: CacheStats = field(default_factory=CacheStats)
    connector_prefix_cache_stats: CacheStats | None = None
    spec_decoding_stats: SpecDecodingStats | None = None
    kv_connector_stats: dict[str, Any] | None = None
    ec_connector_stats: dict[str, Any] | None = None
    cudagraph_stats: Any = None
    iteration_details: Any = None


@dataclass
class PromptTokenStats:
    computed: int = 0
    cached_tokens: int = 0
    total: int = 0


@dataclass
class IterationStats:
    num_generation_tokens: int = 0
    num_preempted_reqs: int = 0
    num_corrupted_reqs: int = 0
    prompt_token_stats: PromptTokenStats = field(default_factory=PromptTokenStats)


def iteration(
    prompt: int = 0, generation: int = 0, *, cached: int = 0, **more: int
) -> IterationStats:
    tokens = PromptTokenStats(prompt - cached, cached, prompt)
    return IterationStats(generation, prompt_token_stats=tokens, **more)


class ConnectorLogging:
    """As vLLM's, it logs what it saw and forgets it."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def observe(self, stats: Any) -> None:
        self.seen.append(stats)

    def log(self, log_fn: Any) -> None:
        if self.seen:
            log_fn("KV Transfer metrics: %s", self.seen)
            self.seen = []


class AggregateStatLoggerBase:
    pass


class LoggingStatLogger:
    def __init__(self, vllm_config: Any) -> None:
        self.kv_cache_device = "CPU"
        self.kv_connector_logging = ConnectorLogging()
        self.ec_connector_logging = ConnectorLogging()
        self.cudagraph_logging = None
        self.spec_decoding_logging = types.SimpleNamespace(is_diffusion=False)

    def _log_iteration_details(self, stats: Any, engine: int) -> None:
        logging.getLogger("vllm.loggers").info("Engine %03d: Iteration", engine)


class PrometheusStatLogger:
    def record(self, *args: Any, **kwargs: Any) -> None:
        pass


class AsyncMPClient:
    """Hands out one message."""

    def __init__(self, message: Any) -> None:
        self.message = message

    async def get_output_async(self) -> Any:
        return self.message


def deliver(
    logger: Any, scheduler_stats: Any, iteration_stats: Any = None, *rest: Any, at: float = 1.0
) -> None:
    """Calls `record` as vLLM's output handler does, with what an engine's message brought."""
    sent = types.SimpleNamespace(scheduler_stats=scheduler_stats, timestamp=at)
    client = sys.modules["vllm.v1.engine.core_client"].AsyncMPClient(sent)
    message = asyncio.run(client.get_output_async())
    assert message is sent
    logger.record(message.scheduler_stats, iteration_stats, *rest)


def config(rank: int = 0, count: int = 2, positions: int | None = None) -> Any:
    speculative = positions and types.SimpleNamespace(num_speculative_tokens=positions)
    parallel = types.SimpleNamespace(_api_process_rank=rank, _api_process_count=count)
    return types.SimpleNamespace(
        parallel_config=parallel,
        speculative_config=speculative,
        device_config=types.SimpleNamespace(device_type="cpu"),
    )


def install(monkeypatch: Any, *, envs: dict[str, Any] | None = None) -> types.ModuleType:
    """Puts a `vllm` into `sys.modules`; the result is its `loggers` module."""

    def module(name: str, **contents: Any) -> types.ModuleType:
        made = types.ModuleType(name)
        vars(made).update(contents)
        monkeypatch.setitem(sys.modules, name, made)
        parent, _, child = name.rpartition(".")
        if parent:
            monkeypatch.setattr(sys.modules[parent], child, made, raising=False)
        return made

    module("vllm")
    module("vllm.envs", **(envs or {"VLLM_COMPUTE_NANS_IN_LOGITS": False}))
    module("vllm.logger", init_logger=logging.getLogger)
    module("vllm.v1")
    module("vllm.v1.engine")
    client = type("AsyncMPClient", (AsyncMPClient,), dict(vars(AsyncMPClient)))
    module("vllm.v1.engine.core_client", AsyncMPClient=client)
    module("vllm.v1.metrics")
    module("vllm.v1.metrics.stats", IterationStats=IterationStats, SchedulerStats=SchedulerStats)
    for name in [name for name in sys.modules if name == "shmstats.vllm.plugin"]:
        monkeypatch.delitem(sys.modules, name)
    return module(
        "vllm.v1.metrics.loggers",
        AggregateStatLoggerBase=AggregateStatLoggerBase,
        LoggingStatLogger=LoggingStatLogger,
        PrometheusStatLogger=PrometheusStatLogger,
    )
