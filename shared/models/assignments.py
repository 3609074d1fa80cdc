"""What an agent has to serve, and what it reports of its host and of its progress.

The balancer's controller gives each agent an `Assignment`, or none. The agent compares it with what
it runs and does the least: nothing, a change without a reload, or a reload. It reports `Work` while
it fetches and loads, and why it cannot.
"""

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from ..inference.adapters import MAX_ADAPTERS, AdapterName, Scale
from ..inference.values import Seconds
from ..sampling import SamplingChoices
from ..strict import STRICT, ListOf
from .engine_options import AutoContext, EngineOptions
from .sources import HttpHosts, Source

MAX_MODEL_NAME = 300
"""Most characters of a model's name; file systems allow 255 bytes."""

MAX_TEMPLATE = 2**17
"""Most characters of a chat template; the longest known has 20,000."""

MAX_SLOTS = 256
"""llama.cpp's own limit on parallel sequences (`LLAMA_MAX_SEQ`)."""

MAX_DEVICES = 64

HOST = "CPU"
"""The name of the host's own memory, beside those of devices."""

MAX_SPEED = 1e15
"""Bytes a second."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


def _model_name(name: str) -> str:
    if not name.isprintable() or " " in name:
        raise ValueError("must have no spaces and no control characters")
    return name


def _sha256(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise ValueError("must be 64 hexadecimal digits, in lower case")
    return digest


ModelName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_MODEL_NAME),
    AfterValidator(_model_name),
]
Sha256 = Annotated[str, AfterValidator(_sha256)]
MAX_BYTES = 2**53
Bytes = Annotated[int, Field(ge=0, le=MAX_BYTES)]
Share = Annotated[float, Field(ge=0, le=1)]
Revision = Annotated[int, Field(ge=0, le=2**53)]

NumSlots = Annotated[int, Field(ge=1, le=MAX_SLOTS)]

Phase = Literal["waiting", "fetching", "loading", "draining", "serving", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WishedAdapter:
    """An adapter (LoRA) beside a model, applied with `scale` where a request says none."""

    __pydantic_config__ = STRICT
    name: AdapterName
    source: Source
    scale: Scale = 1.0


WishedAdapters = Annotated[ListOf[WishedAdapter], Field(max_length=MAX_ADAPTERS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One model that one agent should serve; `name` is what clients ask for.

    `None` leaves a value to the agent or the model. Only a change of what `needs_reload` compares
    loads the model anew; `chat_template`, `sampling`, `adapters` and fewer slots apply without.
    `projector` is the source of the part that reads pictures. Only `http_hosts` may send any of
    the files without TLS: it is what the balancer allows, and no part of what is served. Nor is
    whether it `takes_what_is_left` of devices: what is in its way there stays, so it does not wait.
    """

    __pydantic_config__ = STRICT
    name: ModelName
    source: Source
    sha256: Sha256 | None = None
    projector: Source | None = None
    adapters: WishedAdapters | None = None
    slots: NumSlots | None = None
    context_size: AutoContext | None = None
    engine: EngineOptions = field(default_factory=EngineOptions)
    chat_template: Annotated[str, Field(min_length=1, max_length=MAX_TEMPLATE)] | None = None
    sampling: SamplingChoices = field(default_factory=SamplingChoices)
    http_hosts: Annotated[HttpHosts, Field(exclude_if=lambda hosts: not hosts)] = field(
        default=(), compare=False
    )
    takes_what_is_left: Annotated[bool, Field(exclude_if=lambda is_on: not is_on)] = field(
        default=False, compare=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator of a host: its memory in bytes.

    `name` is what the engine's options call it (`device`), and `description` the product.
    """

    __pydantic_config__ = STRICT
    name: Annotated[str, Field(max_length=200)]
    memory: Bytes
    description: Annotated[str, Field(max_length=200)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What a host has: `memory` in bytes is what all engines on it may use together.

    `is_pinned`: the agent was started with a model of its own and takes no assignment. `disk_free`
    is the room left for model files, in bytes. `answers_fit`: it says what it would choose for a
    model (`ReadFit`); one that forwards to another server does not.
    """

    __pydantic_config__ = STRICT
    memory: Bytes = 0
    devices: Annotated[ListOf[Device], Field(max_length=MAX_DEVICES)] = ()
    cores: Annotated[int, Field(ge=0, le=2**20)] = 0
    disk_free: Bytes | None = None
    platform: Annotated[str, Field(max_length=200)] = ""
    is_pinned: bool = False
    answers_fit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file on its way. `bytes` are here, of `total`, if that is known."""

    __pydantic_config__ = STRICT
    file: Annotated[str, Field(max_length=1024)]
    bytes: Bytes
    total: Bytes | None = None
    bytes_per_second: Annotated[float, Field(ge=0, le=MAX_SPEED)] | None = None
    seconds_left: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """So many `bytes` of a device, or as `CPU` of the host's memory."""

    __pydantic_config__ = STRICT
    device: Annotated[str, Field(max_length=200)]
    bytes: Bytes


MemoryParts = Annotated[
    ListOf[MemoryPart],
    Field(max_length=MAX_DEVICES + 1, exclude_if=lambda parts: not parts),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How far an agent is with the assignment of `revision`.

    `progress` is the share of the phase that is done. `needed` is the memory in bytes that the
    model needs on this host, estimated from its file once that is here, and `least` what it can be
    loaded with where less can be chosen. `claims` is what it wants to find free of each memory
    before it is loaded.
    """

    __pydantic_config__ = STRICT
    revision: Revision
    assignment: Assignment | None = None
    phase: Phase = "waiting"
    progress: Share | None = None
    download: Download | None = None
    needed: Bytes | None = None
    least: Bytes | None = None
    claims: MemoryParts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Serve this from now on, or nothing. An older `revision` than the last one is ignored.

    Revisions number a balancer's orders; its next one is above all that agents reported. The
    same assignment again, after it failed, is another try.
    Where the model has to be loaded anew, running requests may go on for `drain_timeout` seconds.
    """

    __pydantic_config__ = STRICT
    type: Literal["assign"] = "assign"
    revision: Revision
    assignment: Assignment | None = None
    drain_timeout: Annotated[float, Field(ge=0)] = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """Load the model anew, as after a change; running requests may go on for `drain_timeout`."""

    __pydantic_config__ = STRICT
    type: Literal["reload"] = "reload"
    drain_timeout: Annotated[float, Field(ge=0)] = 30.0


def sources_of(assignment: Assignment) -> Iterator[str]:
    """Of all files: of the model, its companions and its adapters."""
    for source in (assignment.source, assignment.projector, assignment.engine.draft_model):
        if source is not None:
            yield source
    for adapter in assignment.adapters or ():
        yield adapter.source


def needs_reload(old: Assignment, new: Assignment, *, loaded_slots: int) -> bool:
    """Whether `new` can only be served by loading the model anew.

    `loaded_slots` is the number that the engine was loaded with: it can serve with fewer.
    """
    slots = loaded_slots if new.slots is None else new.slots
    return loaded_with(old) != loaded_with(new) or slots > loaded_slots


def loaded_with(assignment: Assignment) -> Hashable:
    """All but slots and adapters that an engine is loaded with: equal values, equal loads."""
    return (
        assignment.source,
        assignment.sha256,
        assignment.projector,
        assignment.context_size,
        assignment.engine,
    )
