"""The statistics of the agents' engines, as Prometheus metrics.

As everywhere, agents of one name are added up. An engine that starts again counts from zero, which
is what Prometheus expects of a counter.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import inf

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from ....shared.reports.statistics import DiskUse, Fetches, Statistics
from ...fleet.view import FleetView

_ByName = dict[str, list[Statistics]]


@dataclass(frozen=True, slots=True)
class _Number:
    """One metric: a number of each agent, or one for each value of a further label.

    An agent that has nothing to say to it (`None`) has no series.
    """

    family: Callable[..., GaugeMetricFamily | CounterMetricFamily]
    name: str
    help: str
    values: Callable[[Statistics], dict[str, float | None]]
    label: str | None = None


def _fetches(said: Statistics) -> Fetches:
    return said.fetches or Fetches()


def _disk(said: Statistics) -> DiskUse:
    return said.disk or DiskUse()


_NUMBERS = (
    _Number(
        GaugeMetricFamily,
        "kv_cells",
        "Cells of the KV cache: of running sequences, cached as prefixes for later ones, free.",
        lambda said: {
            "used": said.cells.used,
            "kept": said.cells.kept,
            "free": max(0, said.cells.total - said.cells.used - said.cells.kept),
        },
        label="state",
    ),
    _Number(
        GaugeMetricFamily,
        "parked_cells",
        "Cells' worth of prefixes cached in the agent's host memory.",
        lambda said: {"": said.cells.parked},
    ),
    _Number(
        GaugeMetricFamily,
        "sequences",
        "Sequences in the engine.",
        lambda said: {"running": said.num_running, "waiting": said.num_waiting},
        label="state",
    ),
    _Number(
        GaugeMetricFamily,
        "engine_commands",
        "Commands that wait for the engine's step to end; they are bounded by the slots.",
        lambda said: {"": said.num_commands},
    ),
    _Number(
        GaugeMetricFamily,
        "average_sequences",
        "Sequences that ran at once, on average over the busy time.",
        lambda said: {"": said.average_running},
    ),
    _Number(
        GaugeMetricFamily,
        "decode_tokens_per_second",
        "Tokens a second of the steps that generate, since the model was loaded.",
        lambda said: {"": said.decode_tokens_per_second},
    ),
    _Number(
        GaugeMetricFamily,
        "prefill_tokens_per_second",
        "Tokens a second of the steps that only read prompts, since the model was loaded.",
        lambda said: {"": said.prefill_tokens_per_second},
    ),
    _Number(
        CounterMetricFamily,
        "prompt_tokens",
        "Tokens of prompts: found in the cache, or computed.",
        lambda said: {"cached": said.cached_tokens, "computed": said.computed_tokens},
        label="source",
    ),
    _Number(
        CounterMetricFamily,
        "completion_tokens",
        "Tokens generated.",
        lambda said: {"": said.completion_tokens},
    ),
    _Number(
        CounterMetricFamily,
        "drafted_tokens",
        "Draft tokens, by whether the model accepted them.",
        lambda said: {
            "accepted": said.accepted_tokens,
            "rejected": max(0, said.drafted_tokens - said.accepted_tokens),
        },
        label="outcome",
    ),
    _Number(
        CounterMetricFamily,
        "step_tokens",
        "Tokens of the steps that generate, and of those that only read prompts.",
        lambda said: {"decode": said.decode_tokens, "prefill": said.prefill_tokens},
        label="step",
    ),
    _Number(
        CounterMetricFamily,
        "step_seconds",
        "Time of the steps that generate, and of those that only read prompts.",
        lambda said: {"decode": said.decode_seconds, "prefill": said.prefill_seconds},
        label="step",
    ),
    _Number(
        CounterMetricFamily,
        "busy_seconds",
        "Time during which the engine had sequences.",
        lambda said: {"": said.busy_seconds},
    ),
    _Number(
        CounterMetricFamily,
        "preemptions",
        "Preemptions: a sequence gave up its cells and waited to be computed again.",
        lambda said: {"": said.num_preemptions},
    ),
    _Number(
        GaugeMetricFamily,
        "grammars",
        "Compiled grammars that are cached for later requests.",
        lambda said: {"": said.num_grammars},
    ),
    _Number(
        GaugeMetricFamily,
        "embedding_cells",
        "Cells of the separate KV caches for embeddings and rankings.",
        lambda said: {"": said.num_embedding_cells},
    ),
    _Number(
        GaugeMetricFamily,
        "draft_cells",
        "Cells of the draft model's KV cache.",
        lambda said: {"": said.num_draft_cells or 0},
    ),
    _Number(
        GaugeMetricFamily,
        "media_cache_bytes",
        "Host memory of encoded pictures that are cached for later requests.",
        lambda said: {"": said.num_media_bytes or 0},
    ),
    _Number(
        CounterMetricFamily,
        "prefix_fetches",
        "Prefixes that the agent was asked to fetch from another, and those that it could not get "
        "and computed.",
        lambda said: {"fetched": _fetches(said).num, "failed": _fetches(said).failed},
        label="outcome",
    ),
    _Number(
        CounterMetricFamily,
        "prefix_fetched_tokens",
        "Tokens of prefixes that the agent got from others.",
        lambda said: {"": _fetches(said).tokens},
    ),
    _Number(
        CounterMetricFamily,
        "prefixes_lent",
        "Prefixes that other agents got from this one.",
        lambda said: {"": _fetches(said).lent},
    ),
    _Number(
        GaugeMetricFamily,
        "disk_cache_blocks",
        "Blocks of prefixes of the agent's model that are cached in its --cache-dir.",
        lambda said: {"": None if said.disk is None else said.disk.blocks},
    ),
    _Number(
        GaugeMetricFamily,
        "disk_cache_bytes",
        "Size of those blocks, and of the checkpoints beside them.",
        lambda said: {"": None if said.disk is None else said.disk.bytes},
    ),
    _Number(
        GaugeMetricFamily,
        "disk_cache_cells",
        "Tokens whose cells those blocks have.",
        lambda said: {"": None if said.disk is None else said.disk.cells},
    ),
    _Number(
        GaugeMetricFamily,
        "disk_cache_keys",
        "Prefixes that balancers may ask for, and that are known to be on disk.",
        lambda said: {"": None if said.disk is None else said.disk.keys},
    ),
    _Number(
        CounterMetricFamily,
        "disk_cache_reads",
        "Blocks and checkpoints that were read from disk, and those that were damaged or too late.",
        lambda said: {"read": _disk(said).read, "failed": _disk(said).failed_reads},
        label="outcome",
    ),
    _Number(
        CounterMetricFamily,
        "disk_cache_read_tokens",
        "Tokens of prompts that were read from disk instead of computed.",
        lambda said: {"": _disk(said).tokens},
    ),
    _Number(
        CounterMetricFamily,
        "disk_cache_writes",
        "Blocks and checkpoints that were written to disk, and those that could not be.",
        lambda said: {"written": _disk(said).written, "failed": _disk(said).failed_writes},
        label="outcome",
    ),
)


def engine_metrics(view: FleetView) -> Iterator[Metric]:
    """The metrics of all agents that have said anything of their engines."""
    by_name: _ByName = defaultdict(list)
    for agent in view.agents:
        if agent.statistics is not None:
            by_name[agent.name].append(agent.statistics)
    for number in _NUMBERS:
        yield _family(number, by_name)
    yield _stalls(by_name)
    yield from _devices(by_name)


def _devices(by_name: _ByName) -> Iterator[Metric]:
    """Agents of one name are on one host, and measure the same."""
    memory = GaugeMetricFamily(
        "arriero_device_memory_bytes",
        "Memory of the hosts (device CPU) and of their GPUs, as agents measured it.",
        labels=["host", "device", "kind"],
    )
    use = GaugeMetricFamily(
        "arriero_device_use_ratio",
        "The share of their time that hosts' processors (device CPU) and GPUs were used.",
        labels=["host", "device"],
    )
    temperature = GaugeMetricFamily(
        "arriero_device_temperature_celsius",
        "The hottest sensor of hosts' processors (device CPU) and of their GPUs.",
        labels=["host", "device"],
    )
    for name, several in by_name.items():
        devices = {each.name: each for said in several for each in said.devices}
        for each in devices.values():
            memory.add_metric([name, each.name, "total"], each.total)
            memory.add_metric([name, each.name, "free"], each.free)
            memory.add_metric([name, each.name, "used"], each.total - each.free)
            if each.others is not None:
                memory.add_metric([name, each.name, "others"], each.others)
            if each.use is not None:
                use.add_metric([name, each.name], each.use)
            if each.temperature is not None:
                temperature.add_metric([name, each.name], each.temperature)
    yield from (memory, use, temperature)


def _family(number: _Number, by_name: _ByName) -> Metric:
    labels = ["agent"] if number.label is None else ["agent", number.label]
    family = number.family(f"arriero_agent_{number.name}", number.help, labels=labels)
    for name, several in by_name.items():
        for value, total in _totals(number, several).items():
            family.add_metric([name, value][: len(labels)], total)
    return family


def _totals(number: _Number, several: list[Statistics]) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
    for said in several:
        for label, value in number.values(said).items():
            if value is not None:
                totals[label] += value
    return totals


def _stalls(by_name: _ByName) -> HistogramMetricFamily:
    family = HistogramMetricFamily(
        "arriero_agent_stall_seconds",
        "Pauses of running sequences that were caused by others.",
        labels=["agent"],
    )
    for name, several in by_name.items():
        seconds = sum(said.stalls.seconds for said in several)
        family.add_metric([name], buckets=_buckets(several), sum_value=seconds)
    return family


def _buckets(several: list[Statistics]) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound; with agents of several versions, all of their bounds."""
    counts: dict[float, int] = defaultdict(int)
    for said in several:
        for bound, count in zip((*said.stalls.bounds, inf), said.stalls.counts, strict=True):
            counts[bound] += count
    bounds = sorted(counts)
    cumulative = accumulate(counts[bound] for bound in bounds)
    names = [floatToGoString(bound) for bound in bounds]  # type: ignore[no-untyped-call]
    return list(zip(names, cumulative, strict=True))
