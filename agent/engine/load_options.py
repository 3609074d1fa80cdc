"""The options that an engine is loaded with: declared once, read from the flag to llama.cpp.

A field is the flag, with its bounds and its help. Beside it stands where it counts: which agents
can go on with each other's answers (`fingerprint`), whose cells fit (`cache`), how much memory a
model takes (`memory`), what a desired state may say (`desired`), and what an agent's view shows
(`view`). Tests compare that with what these do.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, model_validator

from ...shared.models.assignments import (
    ContextSize,
    DraftTokens,
    EngineOptions,
    GpuLayers,
    HostCache,
    KvCells,
    MaxStall,
    NumSlots,
    NumThreads,
)
from ...shared.reports.model_info import Kernels, KvLayout
from ...shared.settings.declaration import Shown
from ..cpu_cores import default_threads

DRAFTED_BY_MODEL = 8
"""`--speculate` with a draft model, where it is not said."""

LayoutChoice = Literal["auto"] | KvLayout
KernelChoice = Literal["auto"] | Kernels
SwaFullChoice = Literal["auto", "on", "off"]

Counted = Literal[True] | str
"""`True`, or why it does not count."""

_FAST = "it decides how fast tokens come, and not which"
_ROUNDED = "answers differ by rounding alone, as between any two processors"
_ALIKE = "the cells are the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Where an option counts.

    In the `fingerprint` and the `cache`'s identity it counts with its value, and nothing is left to
    do (`LoadOptions.counted`). `memory`: `models.memory_estimate` reads it. `desired`: a desired
    state may say it, under the same name. `view`: an agent's view shows it, under the same name.
    """

    fingerprint: Counted
    cache: Counted
    memory: Counted
    desired: Counted = True
    view: Counted = True


def _holds_a_slot(cells: int | None, info: ValidationInfo) -> int | None:
    context_size = info.data.get("context_size")
    if cells is not None and context_size is not None and cells < context_size:
        raise ValueError(f"must hold one slot at least, which is {context_size} (context size)")
    return cells


class LoadOptions(BaseModel):
    """The options of an engine. Times in seconds, sizes in tokens but for `host_cache` in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slots: Annotated[
        NumSlots, Counts(fingerprint=_FAST, cache="a state is of one sequence", memory=True)
    ] = Field(default=4, description="sequences to run at once")
    context_size: Annotated[
        ContextSize, Counts(fingerprint=True, cache="a state is of one sequence", memory=True)
    ] = Field(default=4096, description="longest prompt and answer together in one slot, in tokens")
    kv_cells: Annotated[
        KvCells | None,
        AfterValidator(_holds_a_slot),
        Shown("N", "slots times context size"),
        Counts(fingerprint=_FAST, cache=_ALIKE, memory=True),
    ] = Field(default=None, description="KV cache in tokens, of all slots together")
    kv_layout: Annotated[
        LayoutChoice,
        Shown("auto|streams|unified"),
        Counts(
            fingerprint=_ROUNDED,
            cache="pieces of states fit into both layouts",
            memory=True,
            desired="which one pays is a matter of the host's processor",
        ),
    ] = Field(
        default="auto",
        description="KV cache: streams are one of its own for each slot, unified is one for all; "
        "auto takes the unified one",
    )
    swa_full: Annotated[
        SwaFullChoice,
        Shown("auto|on|off"),
        Counts(
            fingerprint=_ROUNDED,
            cache="a state has the window in either case",
            memory="the estimate is of full caches, which take more",
            desired="whether the memory is there is a matter of the host",
            view="it only says how much memory some layers take",
        ),
    ] = Field(
        default="auto",
        description="KV cache of layers with a sliding window: on has all cells, off those of the "
        "slots' windows alone, which takes less memory, but each checkpoint (a prefix that others "
        "can begin with) takes a copy of its window out of --host-cache; auto is off where windows "
        "have 16 MiB or less, there is room for many, and half of the cells are saved",
    )
    host_cache: Annotated[
        HostCache,
        Shown("SIZE", "1GiB"),
        Counts(fingerprint=_FAST, cache=_ALIKE, memory=True),
    ] = Field(
        default=2**30,
        description="host memory for prefixes that are evicted from the KV cache; 0 keeps none "
        "there",
    )
    threads: Annotated[
        NumThreads,
        Shown("N", "physical cores"),
        Counts(fingerprint=_FAST, cache=_ALIKE, memory="what a thread has of its own is little"),
    ] = Field(default_factory=default_threads, description="threads of the engine")
    max_stall: Annotated[
        MaxStall,
        Shown("DURATION"),
        Counts(
            fingerprint=_FAST, cache=_ALIKE, memory="buffers are for the largest step in any case"
        ),
    ] = Field(
        default=0.5,
        description="how long a step that computes prompts may make running streams wait; on CPUs "
        "it may take 1.15 times as long, and a stream's pause is that and its own step",
    )
    gpu_layers: Annotated[
        GpuLayers,
        Counts(
            fingerprint=_ROUNDED,
            cache="a state says how its device lays it out, and llama.cpp refuses another",
            memory=True,
        ),
    ] = Field(
        default=-1,
        description="layers to offload to a GPU, if the build supports one; -1 offloads all",
    )
    kernels: Annotated[
        KernelChoice,
        Shown("auto|all|plain"),
        Counts(
            fingerprint=_ROUNDED,
            cache=_ALIKE,
            memory="weights take as much in either layout",
            desired="which ones are sound is a matter of the host's build",
        ),
    ] = Field(
        default="auto",
        description="matrix kernels on CPUs: all that llama.cpp has, or only the plain ones, which "
        "are slower and sound in every build; auto takes all, unless they are for AMX and nothing "
        "says that the build is sound there",
    )
    projector: Annotated[
        Path | None,
        Shown("FILE"),
        Counts(
            fingerprint="what the file is counts, and not where it lies (`Preparer.traits`)",
            cache="prompts with media are neither stored nor transferred",
            memory="its bytes count with those of the files that are fetched",
            view="the model's `tasks` have `vision` or `audio`",
        ),
    ] = Field(
        default=None,
        description="GGUF file with the part of the model that reads pictures or hears sounds "
        "(mmproj); without it messages may have text only",
    )
    speculate: Annotated[
        DraftTokens,
        Counts(fingerprint=_FAST, cache="cells of drafts do not stay", memory=True),
    ] = Field(
        default=0,
        description="maximum draft tokens per sequence and step (n-gram speculative decoding); "
        "fewer are drafted where they do not pay, and answers stay the same; each takes memory for "
        "two rows of logits per slot (4 bytes for each token of the vocabulary), and with "
        "recurrent layers for a state per slot and checkpoint; 0 turns it off, "
        f"but with --draft-model stands for {DRAFTED_BY_MODEL}",
    )
    draft_model: Annotated[
        Path | None,
        Shown("FILE", "none"),
        Counts(fingerprint=_FAST, cache="it has a cache of its own", memory=True),
    ] = Field(
        default=None,
        description="path of a small GGUF file with the vocabulary of the model, which drafts for "
        "it where that pays, together with n-grams; answers stay the same",
    )
    deterministic: Annotated[
        bool,
        Counts(
            fingerprint="the numbers that are computed count (`LoadedModel.arithmetic`)",
            cache="the numbers that are computed count (`LoadedModel.arithmetic`)",
            memory=True,
        ),
    ] = Field(
        default=False,
        description="the same request gets the same answer, bit for bit, whatever runs beside it, "
        "also after it moved to another such agent; on CPUs, slower, and without drafts and "
        "pictures",
    )

    @model_validator(mode="after")
    def _is_deterministic_at_all(self) -> Self:
        if self.deterministic and self.kv_layout == "unified":
            raise ValueError("--deterministic: needs streams, not --kv-layout unified")
        if self.deterministic and self.projector is not None:
            raise ValueError("--deterministic: cannot be used with --projector")
        return self

    @property
    def max_draft(self) -> int:
        """Most tokens that are drafted for a sequence in a step."""
        return self.speculate or (DRAFTED_BY_MODEL if self.draft_model else 0)

    @property
    def without_drafts(self) -> "LoadOptions":
        """The same options for a model that cannot take back tokens."""
        return self.model_copy(update={"speculate": 0, "draft_model": None})

    @property
    def view(self) -> EngineOptions:
        """What an agent's view shows of them. A draft model's path is its host's own business."""
        shown = {each.name: getattr(self, each.name) for each in fields(EngineOptions)}
        shown |= {"speculate": self.max_draft, "draft_model": None}
        return EngineOptions(**shown)

    def counted(self, place: Literal["fingerprint", "cache"]) -> tuple[str, ...]:
        """The options that count there, with their values."""
        return tuple(
            f"{name}={getattr(self, name)}"
            for name, counts in where_options_count()
            if getattr(counts, place) is True
        )


def where_options_count() -> Iterator[tuple[str, Counts]]:
    """Each option's name, and where it counts."""
    for name, field in LoadOptions.model_fields.items():
        counts = next((mark for mark in field.metadata if isinstance(mark, Counts)), None)
        if counts is None:
            raise TypeError(f"the option `{name}` does not say where it counts (`Counts`)")
        yield name, counts
