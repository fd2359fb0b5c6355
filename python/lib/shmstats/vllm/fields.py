"""What is counted of vLLM: the schema, and where each figure is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .. import CounterDef, GaugeDef, Schema, Server, SnapshotDef
from .._shmstats import Recorder

#: Counters per engine, in the order they are added in: causes before effects, so that no reader
#: sees more hits than queries.
COUNTERS = {
    "prompt_tokens": "Prompt tokens, cached ones included",
    "prompt_tokens_cached": "Prompt tokens that did not have to be computed",
    "prompt_tokens_computed": "Prompt tokens that were computed",
    "generation_tokens": "Generated tokens",
    "preemptions": "Requests that were preempted",
    "corrupted_requests": "Requests with NaN in their logits",
    "prefix_cache_resets": "Resets of the prefix cache",
    "prefix_cache_requests": "Requests that looked into the prefix cache",
    "prefix_cache_queries": "Tokens looked up in the prefix cache",
    "prefix_cache_hits": "Tokens found in the prefix cache",
    "external_prefix_cache_resets": "Resets of the prefix cache behind a KV connector",
    "external_prefix_cache_requests": "Requests that looked behind a KV connector",
    "external_prefix_cache_queries": "Tokens looked up behind a KV connector",
    "external_prefix_cache_hits": "Tokens found behind a KV connector",
    "spec_decode_drafts": "Drafts of speculative decoding",
    "spec_decode_draft_tokens": "Drafted tokens",
    "spec_decode_accepted_tokens": "Drafted tokens that were accepted",
}
#: Counters of the servers' own multi-modal caches, which belong to no engine.
MM_COUNTERS = {
    "mm_cache_resets": "Resets of the multi-modal cache",
    "mm_cache_requests": "Requests that looked into the multi-modal cache",
    "mm_cache_queries": "Items looked up in the multi-modal cache",
    "mm_cache_hits": "Items found in the multi-modal cache",
}
POSITIONS = "spec_decode_accepted_tokens_per_position"
#: vLLM's names of the stages, in its order.
KV_FETCH_STAGES = ("waiting_to_start", "in_progress", "completed_waiting")
#: The used part of an engine's KV cache.
KV_USAGE = "kv_cache_usage"
#: Gauges of an engine, which several servers observe.
GAUGES = {
    "running_requests": "Requests in the engine's batch",
    "waiting_requests": "Requests that wait, deferred ones not counted",
    "deferred_requests": "Requests that wait for something else than room",
    KV_USAGE: "Used part of the engine's KV cache, 0 to 1",
    "kv_fetch_waiting_to_start": "Requests whose KV fetch has not begun",
    "kv_fetch_in_progress": "Requests whose KV is being fetched",
    "kv_fetch_completed_waiting": "Requests whose KV was fetched and that wait to run",
}
#: The sums behind a hit rate. The primary publishes them, for whoever is primary after it.
WINDOW = ("window_requests", "window_queries", "window_hits")
#: A gauge that is never set: its labels are what the lines of a launch have in common, for the
#: launcher, which has no `vllm_config`.
STYLE = "line_style"
#: A label's value is not empty.
_NOTHING = "nothing"


@dataclass(frozen=True)
class Style:
    """What the lines of a launch have in common."""

    device: str = "GPU"
    #: Whether vLLM looks for NaN in logits.
    corrupted: bool = False
    #: Figures that this version of vLLM does not give; left out.
    missing: frozenset[str] = frozenset()
    #: Positions in a draft of speculative decoding; 0 without it.
    positions: int = 0
    is_diffusion: bool = False

    def labels(self) -> dict[str, str]:
        return {
            "device": self.device,
            "corrupted": str(int(self.corrupted)),
            "missing": ",".join(sorted(self.missing)) or _NOTHING,
            "positions": str(self.positions),
            "is_diffusion": str(int(self.is_diffusion)),
        }

    @classmethod
    def of(cls, schema: Schema) -> Style:
        labels = next(record.labels for record in schema.records if record.name == STYLE)
        return cls(
            labels["device"],
            labels["corrupted"] == "1",
            frozenset(labels["missing"].split(",")) - {_NOTHING},
            int(labels["positions"]),
            labels["is_diffusion"] == "1",
        )


def engines_of(schema: Schema) -> list[int]:
    """The engines that a schema was made for."""
    records = [record for record in schema.records if record.name == KV_USAGE]
    return [int(record.labels["engine"]) for record in records]


def window_labels(cache: str, line: str) -> dict[str, str]:
    return {"cache": cache, "line": line}


def schema(engines: Iterable[int], style: Style) -> Schema:
    """The schema for these engines."""
    names = [str(engine) for engine in engines]
    places = [str(position) for position in range(style.positions)]
    labels: dict[str, Any] = {"engine": names}
    declared: list[Any] = [
        CounterDef(name, labels=labels, help=text) for name, text in COUNTERS.items()
    ]
    if places:
        help = "Drafted tokens that were accepted, by their place in the draft"
        declared.append(CounterDef(POSITIONS, labels=labels | {"position": places}, help=help))
    declared += [CounterDef(name, help=text) for name, text in MM_COUNTERS.items()]
    usage: dict[str, Any] = {"type": "f64", "rollup": "mean", "unit": "ratio"}
    gauges = [
        GaugeDef(name, help=text, **(usage if name == KV_USAGE else {}))
        for name, text in GAUGES.items()
    ]
    declared += [
        SnapshotDef("engine", *gauges, shared=True, lifetime="region", labels={"engine": name})
        for name in names
    ]
    windows = [("prefix", "all"), ("external", "all"), ("mm", "all")]
    windows += [(cache, name) for name in names for cache in ("prefix", "external")]
    sums = [GaugeDef(name, help="Behind the hit rate of the last 1000 requests") for name in WINDOW]
    declared += [
        SnapshotDef("hit_window", *sums, shared=True, lifetime="region", labels=window_labels(*one))
        for one in windows
    ]
    declared.append(GaugeDef(STYLE, labels=style.labels(), help="How the lines look"))
    return Schema("vllm", *declared)


#: The counters of a cache, by attribute of vLLM's stats of it.
CACHE_PARTS = {"reset": "resets", "requests": "requests", "queries": "queries", "hits": "hits"}


def _cache(name: str) -> dict[str, str]:
    return {part: f"{name}_{counter}" for part, counter in CACHE_PARTS.items()}


#: What is read of vLLM's stats of one step: by attribute, a counter, or the same of its attributes.
#: What a version of vLLM does not have is left out.
ITERATION = {
    "prompt_token_stats": {
        "total": "prompt_tokens",
        "cached_tokens": "prompt_tokens_cached",
        "computed": "prompt_tokens_computed",
    },
    "num_generation_tokens": "generation_tokens",
    "num_preempted_reqs": "preemptions",
    "num_corrupted_reqs": "corrupted_requests",
}
SCHEDULER = {
    "prefix_cache_stats": _cache("prefix_cache"),
    "connector_prefix_cache_stats": _cache("external_prefix_cache"),
    "spec_decoding_stats": {
        "num_drafts": "spec_decode_drafts",
        "num_draft_tokens": "spec_decode_draft_tokens",
        "num_accepted_tokens": "spec_decode_accepted_tokens",
        "num_accepted_tokens_per_pos": [POSITIONS],
    },
}
#: An engine's gauges, in the order of GAUGES.
SCHEDULER_GAUGES: tuple[str | tuple[str, str], ...] = (
    "num_running_reqs",
    "num_waiting_reqs",
    "num_skipped_waiting_reqs",
    "kv_cache_usage",
    *(("num_kv_fetch_reqs_by_stage", stage) for stage in KV_FETCH_STAGES),
)
#: What each server logs for itself.
OWN = ("iteration_details", "kv_connector_stats", "ec_connector_stats", "cudagraph_stats")


class Recorders:
    """What one server writes."""

    def __init__(self, server: Server, engines: Iterable[int], style: Style) -> None:
        self._server, self._places = server, range(style.positions)
        #: By engine: from the stats of the scheduler, whether there is something for lines of our
        #: own; and from those of the iteration.
        self.engines = {engine: self._engine({"engine": str(engine)}) for engine in engines}
        mm = self._tree(_cache("mm_cache"), {})
        self.mm: Callable[..., bool] = Recorder(mm).record

    def _engine(self, labels: dict[str, str]) -> tuple[Callable[..., bool], Callable[..., bool]]:
        scheduler = Recorder(
            self._tree(SCHEDULER, labels),
            snapshot=self._server.snapshot("engine", labels),
            gauges=SCHEDULER_GAUGES,
            watch=OWN,
        )
        return scheduler.record, Recorder(self._tree(ITERATION, labels)).record

    def _tree(self, names: Any, labels: dict[str, str]) -> Any:
        if isinstance(names, dict):
            return {name: self._tree(under, labels) for name, under in names.items()}
        if isinstance(names, list):
            (name,) = names
            sets = [labels | {"position": str(place)} for place in self._places]
            return [self._server.counter(name, one) for one in sets]
        return self._server.counter(names, labels)
