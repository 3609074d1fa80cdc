"""What an engine did since its model was loaded, and how full its cache is."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ..inference import Rate, Seconds
from ..models.assignments import MAX_DEVICES, Bytes
from ..strict import STRICT, ListOf

Total = Annotated[int, Field(ge=0, le=2**53)]
"""A count that every reader of JSON keeps exactly."""

MAX_BOUNDS = 32
"""Most buckets of a histogram, less the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The cells of the KV cache: `used` by running sequences, `kept` as prefixes; the rest is free.

    Cells of a prefix that a running sequence shares are used, not kept. Beyond the cache, `parked`
    cells' worth of prefixes is in the agent's host memory.
    """

    __pydantic_config__ = STRICT
    total: Total = 0
    used: Total = 0
    kept: Total = 0
    parked: Total = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetches:
    """Prefixes that the agent got from others: `num`, with so many `tokens` and `bytes`.

    That took `seconds`. Another `failed` were not to be had, and were computed. `lent` went to
    other agents.
    """

    __pydantic_config__ = STRICT
    num: Total = 0
    failed: Total = 0
    tokens: Total = 0
    bytes: Total = 0
    seconds: Seconds = 0.0
    lent: Total = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """The disk tier of the prefix cache: `blocks` of this model, which take so many `bytes`.

    These are with its checkpoints. The blocks hold what so many `cells` would, and so many `keys`
    of balancers are known to belong to them. Since the engine started so many files were `read`,
    which spared computing so many `tokens`, and `written`. Those that were damaged or too late are
    `failed_reads`.
    """

    __pydantic_config__ = STRICT
    blocks: Total = 0
    bytes: Total = 0
    cells: Total = 0
    keys: Total = 0
    read: Total = 0
    tokens: Total = 0
    written: Total = 0
    failed_reads: Total = 0
    failed_writes: Total = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts of durations: those up to each of `bounds`, which grow, and last the longer ones.

    `seconds` is their sum.
    """

    __pydantic_config__ = STRICT
    bounds: Annotated[ListOf[Seconds], Field(max_length=MAX_BOUNDS)] = ()
    counts: Annotated[ListOf[Total], Field(max_length=MAX_BOUNDS + 1)] = (0,)
    seconds: Seconds = 0.0

    @model_validator(mode="after")
    def _match(self) -> Self:
        if len(self.counts) != len(self.bounds) + 1:
            raise ValueError("must have one more of `counts` than of `bounds`")
        if any(low >= high for low, high in pairwise(self.bounds)):
            raise ValueError("must have growing `bounds`")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """The memory of a GPU, or as `CPU` that of the host, in bytes; nobody uses what is `free`.

    Programs other than this agent use `others` of a GPU, where its driver tells.
    `name` is what the engine's options call it. `use` is the share of its time that was used since
    the last measurement, `temperature` in °C; both where the system tells.
    """

    __pydantic_config__ = STRICT
    name: Annotated[str, Field(max_length=200)]
    kind: Literal["cpu", "gpu", "igpu"]
    total: Bytes
    free: Bytes
    others: Bytes | None = None
    use: Annotated[float, Field(ge=0, le=1)] | None = None
    temperature: Annotated[float, Field(ge=-300, le=1000)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What the engine did since its model was loaded, by its own clock, and how things stand.

    `num_commands` wait for the step that is computed to end.
    Sent after `Welcome`; then on change, at most about once a second: by an idle engine when its
    devices were measured, every few seconds.
    Rates are tokens a second: of steps that generate, of steps that only read prompts, and of all
    the time with anything to do; `null` where there was none. `average_running` is taken over that
    time, too. `decode_seconds` and `prefill_seconds` are the time of those steps, `stalls` the
    pauses of running sequences that others caused. Of `drafted_tokens`, which were guessed and
    computed ahead, `accepted_tokens` were accepted. `num_grammars` are kept compiled.
    `num_embedding_cells` have the contexts that embed and rank, beside the engine's `cells`,
    and `num_draft_cells` that of the draft model, if there is one.
    `num_media_bytes` are kept of encoded pictures, where there is a projector.
    `fetches` are those of prefixes from other agents, where it lends its own. `disk` is there with
    a folder for prefixes. `devices` are measured every few seconds.
    """

    __pydantic_config__ = STRICT
    type: Literal["statistics"] = "statistics"
    num_running: Total = 0
    num_waiting: Total = 0
    num_commands: Total | None = None
    cells: Cells = field(default_factory=Cells)
    num_preemptions: Total = 0
    num_grammars: Total = 0
    num_embedding_cells: Total = 0
    num_draft_cells: Total | None = None
    num_media_bytes: Total | None = None
    fetches: Fetches | None = None
    disk: DiskUse | None = None
    devices: Annotated[
        ListOf[DeviceMemory],
        Field(max_length=MAX_DEVICES, exclude_if=lambda devices: not devices),
    ] = ()
    cached_tokens: Total = 0
    computed_tokens: Total = 0
    completion_tokens: Total = 0
    drafted_tokens: Total = 0
    accepted_tokens: Total = 0
    decode_tokens: Total = 0
    decode_seconds: Seconds = 0.0
    prefill_tokens: Total = 0
    prefill_seconds: Seconds = 0.0
    busy_seconds: Seconds = 0.0
    decode_tokens_per_second: Rate | None = None
    prefill_tokens_per_second: Rate | None = None
    tokens_per_second: Rate | None = None
    average_running: Rate | None = None
    stalls: Histogram = field(default_factory=Histogram)
