"""The assignment of a model to an agent, and the agent's report of its host and its progress.

The balancer's controller gives each agent an `Assignment`, or none. The agent compares the
assignment with the model that it serves, and makes the smallest change: none, a change without a
reload, or a reload. While it fetches and loads the model, it reports `Work`, and issues if it
cannot.
"""

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from ..inference.adapters import MAX_ADAPTERS, AdapterName, Scale
from ..inference.values import Seconds
from ..reports.figures import Figure, Line
from ..sampling import SamplingChoices
from ..strict import STRICT, ListOf
from .engine_options import AutoContext, EngineOptions
from .sources import HttpHosts, Source

MAX_MODEL_NAME = 300
"""Maximum characters of a model's name; file systems allow 255 bytes."""

MAX_TEMPLATE = 2**17
"""Maximum characters of a chat template; the longest known template has 20,000."""

MAX_SLOTS = 256
"""llama.cpp's limit on parallel sequences (`LLAMA_MAX_SEQ`)."""

MAX_DEVICES = 64

HOST = "CPU"
"""Name of the host's memory, among the names of devices."""

MAX_SPEED = 1e15
"""Maximum rate of a download, in bytes per second."""

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
class DesiredAdapter:
    """An adapter (LoRA) of a model; `scale` applies to requests without a scale."""

    __pydantic_config__ = STRICT
    name: AdapterName
    source: Source
    scale: Scale = 1.0


DesiredAdapters = Annotated[ListOf[DesiredAdapter], Field(max_length=MAX_ADAPTERS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A model that an agent should serve; `name` is the name in requests.

    `None` leaves a value to the agent or the model. Only a change of the values that
    `needs_reload` compares reloads the model. `chat_template`, `sampling`, `adapters` and fewer
    slots apply without a reload. `projector` is the source of the model's media projector. Only
    `http_hosts` may send any of the files without TLS; the balancer allows these hosts, and they
    do not change what is served. An agent that `takes_what_is_left` of a device's memory does not
    wait until other programs free memory.
    """

    __pydantic_config__ = STRICT
    name: ModelName
    source: Source
    sha256: Sha256 | None = None
    projector: Source | None = None
    adapters: DesiredAdapters | None = None
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
    """An accelerator of a host; `memory` is in bytes.

    `name` is the name in the engine's options (`device`), and `description` the product.
    """

    __pydantic_config__ = STRICT
    name: Annotated[str, Field(max_length=200)]
    memory: Bytes
    description: Annotated[str, Field(max_length=200)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """The resources of a host; all engines on it may use `memory` bytes together.

    `is_pinned`: the agent was started with a model of its own and takes no assignment. `disk_free`
    is the free space for model files in bytes. `answers_fit`: the agent answers `ReadFit`; an agent
    that forwards to another server does not.
    """

    __pydantic_config__ = STRICT
    memory: Annotated[
        Bytes,
        Figure(
            "facts.memory",
            "bytes of memory that all engines on the host may use together",
            line=Line(title="Memory", words="{facts.memory|bytes}", needs="facts.memory"),
        ),
    ] = 0
    devices: Annotated[ListOf[Device], Field(max_length=MAX_DEVICES)] = ()
    cores: Annotated[
        int,
        Field(ge=0, le=2**20),
        Figure(
            "facts.cores",
            "cores of its processor",
            line=Line(title="Cores", words="{facts.cores|count}", needs="facts.cores"),
        ),
    ] = 0
    disk_free: Annotated[
        Bytes | None,
        Figure(
            "facts.disk_free",
            "bytes of free space for model files, within `--models-limit`",
            line=Line(
                title="Disk free for models",
                words="{facts.disk_free|bytes}",
                hint="Room on the disk for more model files, within --models-limit.",
                known="facts.disk_free",
            ),
        ),
    ] = None
    platform: Annotated[str, Field(max_length=200)] = ""
    is_pinned: bool = False
    answers_fit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file that is being downloaded: `bytes` of `total`, if the total is known."""

    __pydantic_config__ = STRICT
    file: Annotated[str, Field(max_length=1024)]
    bytes: Bytes
    total: Bytes | None = None
    bytes_per_second: Annotated[float, Field(ge=0, le=MAX_SPEED)] | None = None
    seconds_left: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """`bytes` of a device's memory; the device `CPU` is the host's memory."""

    __pydantic_config__ = STRICT
    device: Annotated[str, Field(max_length=200)]
    bytes: Bytes


MemoryParts = Annotated[
    ListOf[MemoryPart],
    Field(max_length=MAX_DEVICES + 1, exclude_if=lambda parts: not parts),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The progress of an agent with the assignment of `revision`.

    `progress` is the completed share of the phase. `needed` is the memory in bytes that the model
    needs on this host; it is estimated from the file once the file is on the host. `least` is the
    memory with the smallest options, if the agent can choose them. `claims` is the free memory of
    each device that the agent waits for before it loads the model.
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
    """Serve this assignment, or nothing. An agent ignores a `revision` older than the last one.

    Revisions number a balancer's orders; the next revision is above all revisions that agents
    reported. If an assignment failed and comes again, the agent tries again. Before a reload,
    running requests may go on for `drain_timeout` seconds.
    """

    __pydantic_config__ = STRICT
    type: Literal["assign"] = "assign"
    revision: Revision
    assignment: Assignment | None = None
    drain_timeout: Annotated[float, Field(ge=0)] = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """Reload the model, as after a change; running requests may go on for `drain_timeout`."""

    __pydantic_config__ = STRICT
    type: Literal["reload"] = "reload"
    drain_timeout: Annotated[float, Field(ge=0)] = 30.0


def sources_of(assignment: Assignment) -> Iterator[str]:
    """Yield the sources of all files: the model's, its projector's, draft model's and adapters'."""
    for source in (assignment.source, assignment.projector, assignment.engine.draft_model):
        if source is not None:
            yield source
    for adapter in assignment.adapters or ():
        yield adapter.source


def needs_reload(old: Assignment, new: Assignment, *, loaded_slots: int) -> bool:
    """Return whether serving `new` needs a reload.

    `loaded_slots` is the number of slots with which the engine was loaded; it can serve fewer.
    """
    slots = loaded_slots if new.slots is None else new.slots
    return loaded_with(old) != loaded_with(new) or slots > loaded_slots


def loaded_with(assignment: Assignment) -> Hashable:
    """Return the values on which a load depends, except slots and adapters; equal if loads are."""
    return (
        assignment.source,
        assignment.sha256,
        assignment.projector,
        assignment.context_size,
        assignment.engine,
    )
