"""Figures of an engine since its model was loaded, and the use of its cache."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ..inference import Rate, Seconds
from ..models.assignments import MAX_DEVICES, Bytes
from ..strict import STRICT, ListOf
from .figures import Family, Figure, Line

Total = Annotated[int, Field(ge=0, le=2**53)]
"""A count that every JSON reader keeps exactly."""

MAX_BOUNDS = 32
"""Maximum bounds of a histogram; it has one bucket more."""

KV_CELLS = Family(
    "kv_cells",
    "Cells of the KV cache: used by running sequences, cached as prefixes, or free.",
    label="state",
)
PARKED_CELLS = Family("parked_cells", "Cached prefixes in the agent's host memory, in cells.")
SEQUENCES = Family("sequences", "Sequences in the engine.", label="state")
PROMPT_TOKENS = Family(
    "prompt_tokens",
    "Tokens of prompts, by whether they were cached or computed.",
    label="source",
    is_counter=True,
)
DRAFTED_TOKENS = Family(
    "drafted_tokens",
    "Draft tokens, by whether the model accepted them.",
    label="outcome",
    is_counter=True,
)
STEP_TOKENS = Family(
    "step_tokens",
    "Tokens of steps that generate, and of steps that only read prompts.",
    label="step",
    is_counter=True,
)
STEP_SECONDS = Family(
    "step_seconds",
    "Time of steps that generate, and of steps that only read prompts.",
    label="step",
    is_counter=True,
)
PREFIX_FETCHES = Family(
    "prefix_fetches",
    "Prefixes that the agent fetched from another agent, and failed fetches, after which it "
    "computed the prefix.",
    label="outcome",
    is_counter=True,
    absent=0,
)
DISK_READS = Family(
    "disk_cache_reads",
    "Blocks and checkpoints read from disk, and reads that failed (damaged or too late).",
    label="outcome",
    is_counter=True,
    absent=0,
)
DISK_WRITES = Family(
    "disk_cache_writes",
    "Blocks and checkpoints written to disk, and writes that failed.",
    label="outcome",
    is_counter=True,
    absent=0,
)
"""Metrics with several figures; all are named `arriero_agent_…`."""

DEVICE_MEMORY = Family(
    "memory_bytes",
    "Memory of the hosts (device CPU) and of their GPUs, as agents measured it.",
    label="kind",
)
"""Named `arriero_device_…`, as are all metrics of devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The cells of the KV cache: `used` by running sequences, `kept` as prefixes, others free.

    If a running sequence shares cells of a prefix, the cells are used, not kept. In addition,
    `parked` cells' worth of prefixes is in the agent's host memory alone.
    """

    __pydantic_config__ = STRICT
    total: Annotated[Total, Figure("cells.total", "cells of the KV cache")] = 0
    used: Annotated[
        Total,
        Figure(
            "cells.used",
            "cells of running sequences",
            KV_CELLS,
            "used",
            line=Line(
                title="KV cells",
                words="{cells.used|count} used and {cells.kept|count} cached of "
                "{cells.total|count}",
                needs="cells.total",  # those of another server are unknown
                hint="A cell is room for one token. Used: by running requests. Cached: left by "
                "earlier ones.",
            ),
        ),
    ] = 0
    kept: Annotated[Total, Figure("cells.kept", "cells of cached prefixes", KV_CELLS, "kept")] = 0
    parked: Annotated[
        Total,
        Figure(
            "cells.parked",
            "cells' worth of prefixes in host memory",
            PARKED_CELLS,
            line=Line(
                title="Parked in host memory",
                words="{cells.parked|count} cells",
                needs="cells.total",
                hint="Cached tokens that were moved out of the KV cache and can be brought back.",
            ),
        ),
    ] = 0

    @property
    def free(self) -> Annotated[int, Figure(metric=KV_CELLS, label="free")]:
        """Cells that are neither used nor kept."""
        return max(0, self.total - self.used - self.kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetches:
    """Prefixes that the agent fetched from others: `num`, with their `tokens` and `bytes`.

    The fetches took `seconds`. `failed` fetches failed, and the agent computed the prefixes. `lent`
    prefixes went to other agents.
    """

    __pydantic_config__ = STRICT
    num: Annotated[Total, Figure(metric=PREFIX_FETCHES, label="fetched")] = 0
    failed: Annotated[Total, Figure(metric=PREFIX_FETCHES, label="failed")] = 0
    tokens: Annotated[
        Total,
        Figure(
            metric=Family(
                "prefix_fetched_tokens",
                "Tokens of prefixes that the agent got from others.",
                is_counter=True,
                absent=0,
            )
        ),
    ] = 0
    bytes: Total = 0
    seconds: Seconds = 0.0
    lent: Annotated[
        Total,
        Figure(
            metric=Family(
                "prefixes_lent",
                "Prefixes that other agents got from this one.",
                is_counter=True,
                absent=0,
            )
        ),
    ] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """The disk tier of the prefix cache.

    `blocks` and `bytes` count this model's files; `bytes` includes checkpoints. The blocks hold
    `cells` cells; `keys` keys of balancers are known to belong to them. All other counts begin
    with the engine's start: `read` files, which saved computing `tokens`, `written` files, and
    `failed_reads` and `failed_writes`. A read fails if the file is damaged or comes too late.
    """

    __pydantic_config__ = STRICT
    blocks: Annotated[
        Total,
        Figure(
            metric=Family(
                "disk_cache_blocks",
                "Blocks of prefixes of the agent's model that are cached in its --cache-dir.",
            )
        ),
    ] = 0
    bytes: Annotated[
        Total,
        Figure(
            "disk_cache.bytes",
            "size of the prefixes on disk (`--cache-dir`); `disk_cache` is `null` without a folder",
            Family("disk_cache_bytes", "Size of these blocks and of their checkpoints."),
            line=Line(
                title="Cached on disk",
                words="{disk_cache.bytes|bytes}, {disk_cache.read_tokens_total|compact} tokens "
                "read",
                needs="disk_cache",
                hint="Cached prompts that survive a restart (--cache-dir).",
            ),
        ),
    ] = 0
    cells: Annotated[
        Total, Figure(metric=Family("disk_cache_cells", "Tokens whose cells are in these blocks."))
    ] = 0
    keys: Annotated[
        Total,
        Figure(
            metric=Family(
                "disk_cache_keys",
                "Prefixes known to balancers whose blocks are on disk.",
            )
        ),
    ] = 0
    read: Annotated[Total, Figure(metric=DISK_READS, label="read")] = 0
    tokens: Annotated[
        Total,
        Figure(
            "disk_cache.read_tokens_total",
            "tokens that were read from disk instead of computed",
            Family(
                "disk_cache_read_tokens",
                "Tokens of prompts that were read from disk instead of computed.",
                is_counter=True,
                absent=0,
            ),
        ),
    ] = 0
    written: Annotated[Total, Figure(metric=DISK_WRITES, label="written")] = 0
    failed_reads: Annotated[Total, Figure(metric=DISK_READS, label="failed")] = 0
    failed_writes: Annotated[Total, Figure(metric=DISK_WRITES, label="failed")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts of durations: one for each of the ascending `bounds`, and one for longer durations.

    `seconds` is the sum of the durations.
    """

    __pydantic_config__ = STRICT
    bounds: Annotated[ListOf[Seconds], Field(max_length=MAX_BOUNDS)] = ()
    counts: Annotated[ListOf[Total], Field(max_length=MAX_BOUNDS + 1)] = (0,)
    seconds: Annotated[
        Seconds,
        Figure(
            "stall_seconds_total",
            "total time of these pauses",
            digits=3,
        ),
    ] = 0.0

    @property
    def num(
        self,
    ) -> Annotated[
        Total,
        Figure(
            "stalls_total",
            "pauses of running sequences while prompts of others were read; `/metrics` has their "
            "histogram",
            line=Line(
                title="Stalls",
                words="{stalls_total|count} · {stall_seconds_total|duration}",
                hint=(
                    "Pauses of running answers while prompts of other requests were read: "
                    "their number and total time. --max-stall limits each pause."
                ),
            ),
        ),
    ]:
        """The number of counted durations."""
        return sum(self.counts)

    @model_validator(mode="after")
    def _match(self) -> Self:
        if len(self.counts) != len(self.bounds) + 1:
            raise ValueError("must have one more of `counts` than of `bounds`")
        if any(low >= high for low, high in pairwise(self.bounds)):
            raise ValueError("must have growing `bounds`")
        return self


DeviceKind = Literal["cpu", "gpu", "igpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """The memory of a GPU, or of the host (`CPU`), in bytes, and its other figures.

    `name` is the name in the engine's options. Figures that the system does not report are `None`.
    """

    __pydantic_config__ = STRICT
    name: Annotated[str, Field(max_length=200)]
    kind: DeviceKind
    total: Annotated[Bytes, Figure("memory.total", "its memory", DEVICE_MEMORY, "total")]
    free: Annotated[Bytes, Figure("memory.free", "unused memory", DEVICE_MEMORY, "free")]
    others: Annotated[
        Bytes | None,
        Figure(
            "memory.others",
            "memory of programs other than the agent; NVIDIA's cards only",
            DEVICE_MEMORY,
            "others",
        ),
    ] = None
    use: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None,
        Figure(
            "use",
            "share of the last seconds in which it was used, from 0 to 1",
            Family(
                "use_ratio",
                "The share of their time that hosts' processors (device CPU) and GPUs were used.",
            ),
            digits=3,
            line=Line(
                title="Use",
                words="{use|percent}",
                hint="The share of the last seconds in which the GPU computed, for any program.",
                most=1,
            ),
        ),
    ] = None
    temperature: Annotated[
        Annotated[float, Field(ge=-300, le=1000)] | None,
        Figure(
            "temperature",
            "its hottest sensor, in °C",
            Family(
                "temperature_celsius",
                "The hottest sensor of hosts' processors (device CPU) and of their GPUs.",
            ),
            digits=3,
            line=Line(
                title="Temperature",
                words="{temperature|degrees}",
                hint="The hottest of the host's sensors of this kind.",
                most=100,
            ),
        ),
    ] = None

    @property
    def used(
        self,
    ) -> Annotated[
        Bytes,
        Figure(
            "memory.used",
            "memory that is not free",
            DEVICE_MEMORY,
            "used",
            line=Line(
                title="Memory used",
                hint=(
                    "Memory used by all programs of the host; memory for cached files counts "
                    "as free."
                ),
                most="memory.total",
            ),
        ),
    ]:
        """Memory that is not free."""
        return max(0, self.total - self.free)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Figures of the engine since its model was loaded, by its own clock, and its state now.

    `num_commands` commands wait for the running step to end. Sent after `Welcome`, then on change,
    at most about once a second; an idle engine sends it every few seconds, after measuring its
    devices. Rates are tokens a second: of steps that generate, of steps that only read prompts, and
    of all busy time; `null` if there was none. `average_running` covers the busy time, too.
    `decode_seconds` and `prefill_seconds` are the time of those steps, `stalls` the pauses of
    running sequences that other sequences caused. The model accepted `accepted_tokens` of the
    `drafted_tokens`. `num_grammars` compiled grammars are cached. The contexts for embeddings and
    rankings have `num_embedding_cells` in addition to `cells`, and the draft model has
    `num_draft_cells`. `num_media_bytes` is the size of the cached encodings of pictures, if there
    is a projector. `fetches` is set if the agent lends prefixes, `disk` if it has a folder for
    prefixes. `devices` are measured every few seconds.
    """

    __pydantic_config__ = STRICT
    type: Literal["statistics"] = "statistics"
    decode_tokens_per_second: Annotated[
        Rate | None,
        Figure(
            "decode_tokens_per_second",
            "tokens a second of the steps that generate, of all sequences together; `null` "
            "before the first step",
            Family(
                "decode_tokens_per_second",
                "Tokens a second of the steps that generate, since the model was loaded.",
            ),
            line=Line(
                title="Decodes",
                words="{decode_tokens_per_second|rate} tokens/s",
                hint="Tokens a second in all, in steps that make answers.",
            ),
        ),
    ] = None
    prefill_tokens_per_second: Annotated[
        Rate | None,
        Figure(
            "prefill_tokens_per_second",
            "tokens a second of the steps that only read prompts; `null` before the first step",
            Family(
                "prefill_tokens_per_second",
                "Tokens a second of the steps that only read prompts, since the model was loaded.",
            ),
            line=Line(
                title="Reads prompts",
                words="{prefill_tokens_per_second|rate} tokens/s",
                hint="Tokens a second in steps that only read prompts.",
            ),
        ),
    ] = None
    tokens_per_second: Annotated[
        Rate | None,
        Figure(
            "throughput_tokens_per_second",
            "tokens generated a second of busy time, by the wall clock; the plots show the "
            "current rate",
        ),
    ] = None
    average_running: Annotated[
        Rate | None,
        Figure(
            "average_sequences",
            "sequences that ran at once, on average over the busy time",
            Family(
                "average_sequences", "Sequences that ran at once, on average over the busy time."
            ),
            line=Line(
                title="At once, on average",
                hint="Requests whose answers were computed together in a step.",
            ),
        ),
    ] = None
    num_running: Annotated[
        Total,
        Figure(
            "sequences.running",
            "sequences that run in the engine",
            SEQUENCES,
            "running",
            line=Line(
                title="Sequences",
                words="{sequences.running|count} running, {sequences.waiting|count} waiting",
                hint=(
                    "Requests in the engine: running requests, and requests that wait for free "
                    "cells in its KV cache."
                ),
            ),
        ),
    ] = 0
    num_waiting: Annotated[
        Total,
        Figure("sequences.waiting", "sequences that wait in the engine", SEQUENCES, "waiting"),
    ] = 0
    num_commands: Annotated[
        Total | None,
        Figure(
            metric=Family(
                "engine_commands",
                "Commands that wait for the engine's step to end; they are bounded by the slots.",
            )
        ),
    ] = None
    cells: Cells = field(default_factory=Cells)
    num_preemptions: Annotated[
        Total,
        Figure(
            "preemptions_total",
            "how often a sequence gave up its cells and was computed again later",
            Family(
                "preemptions",
                "Preemptions: a sequence gave up its cells and waited to be computed again.",
                is_counter=True,
            ),
            line=Line(
                title="Preemptions",
                words="{preemptions_total|count}",
                hint="Requests that were paused because the KV cache was full; they were continued "
                "later.",
            ),
        ),
    ] = 0
    num_grammars: Annotated[
        Total,
        Figure(metric=Family("grammars", "Compiled grammars that are cached for later requests.")),
    ] = 0
    num_embedding_cells: Annotated[
        Total,
        Figure(
            metric=Family(
                "embedding_cells", "Cells of the separate KV caches for embeddings and rankings."
            )
        ),
    ] = 0
    num_draft_cells: Annotated[
        Total | None,
        Figure(metric=Family("draft_cells", "Cells of the draft model's KV cache.", absent=0)),
    ] = None
    num_media_bytes: Annotated[
        Total | None,
        Figure(
            metric=Family(
                "media_cache_bytes",
                "Host memory of encoded pictures that are cached for later requests.",
                absent=0,
            )
        ),
    ] = None
    fetches: Fetches | None = None
    disk: DiskUse | None = None
    devices: Annotated[
        ListOf[DeviceMemory],
        Field(max_length=MAX_DEVICES, exclude_if=lambda devices: not devices),
    ] = ()
    cached_tokens: Annotated[
        Total,
        Figure(
            "cached_tokens_total",
            "tokens of prompts that were found in the cache",
            PROMPT_TOKENS,
            "cached",
            line=Line(
                title="Prompts cached",
                hint="The share of prompts' tokens that did not have to be computed.",
            ),
        ),
    ] = 0
    computed_tokens: Annotated[
        Total,
        Figure(
            "computed_tokens_total",
            "tokens of prompts that were computed",
            PROMPT_TOKENS,
            "computed",
        ),
    ] = 0
    completion_tokens: Annotated[
        Total,
        Figure(
            "completion_tokens_total",
            "tokens generated",
            Family("completion_tokens", "Tokens generated.", is_counter=True),
            line=Line(
                title="Tokens given out",
                words="{completion_tokens_total|compact}",
                hint="",
            ),
        ),
    ] = 0
    drafted_tokens: Annotated[
        Total,
        Figure(
            "drafted_tokens_total",
            "draft tokens of speculative decoding (`--speculate`)",
            line=Line(
                title="Drafts accepted",
                hint="The share of draft tokens that were right. Each right token saved a step.",
            ),
        ),
    ] = 0
    accepted_tokens: Annotated[
        Total,
        Figure(
            "accepted_tokens_total",
            "draft tokens that the model accepted",
            DRAFTED_TOKENS,
            "accepted",
        ),
    ] = 0
    decode_tokens: Annotated[Total, Figure(metric=STEP_TOKENS, label="decode")] = 0
    decode_seconds: Annotated[Seconds, Figure(metric=STEP_SECONDS, label="decode")] = 0.0
    prefill_tokens: Annotated[Total, Figure(metric=STEP_TOKENS, label="prefill")] = 0
    prefill_seconds: Annotated[Seconds, Figure(metric=STEP_SECONDS, label="prefill")] = 0.0
    busy_seconds: Annotated[
        Seconds,
        Figure(
            "busy_seconds_total",
            "time during which the engine had sequences",
            Family(
                "busy_seconds",
                "Time during which the engine had sequences.",
                is_counter=True,
            ),
            digits=3,
            line=Line(
                title="Busy",
                words="{busy_seconds_total|duration}",
                hint="Time during which the engine had requests.",
            ),
        ),
    ] = 0.0
    stalls: Histogram = field(default_factory=Histogram)

    @property
    def rejected_tokens(self) -> Annotated[int, Figure(metric=DRAFTED_TOKENS, label="rejected")]:
        """Draft tokens that the model did not accept."""
        return max(0, self.drafted_tokens - self.accepted_tokens)
