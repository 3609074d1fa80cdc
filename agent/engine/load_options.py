"""The options that an engine is loaded with: declared once, from the flag to llama.cpp.

A field is the flag, with its bounds and its help. Its `Counts` say what else the option affects:

- `fingerprint`: which agents can continue each other's answers;
- `cache`: whose cells fit;
- `memory`: how much memory a model takes;
- `desired`: what a desired state may contain;
- `view`: what an agent's view shows.

Tests compare these entries with the code.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, Field, ValidationInfo, model_validator

from ...shared.models.assignments import NumSlots
from ...shared.models.engine_options import (
    MAX_PATTERNS,
    AutoCells,
    AutoContext,
    BatchSize,
    CacheType,
    CacheTypeV,
    ContextSize,
    Devices,
    DraftTokens,
    EngineOptions,
    FitChoice,
    FitTarget,
    FlashAttn,
    GpuLayers,
    HostCache,
    LoadMode,
    MainGpu,
    MaxStall,
    Mlock,
    Numa,
    NumCpuMoe,
    NumThreads,
    OverrideKv,
    OverrideTensor,
    RopeFreqBase,
    RopeScale,
    RopeScaling,
    SplitMode,
    SwaFull,
    TensorSplit,
    UbatchSize,
    YarnFactor,
    YarnOrigCtx,
    devices_of,
)
from ...shared.reports.model_info import Kernels, KvLayout
from ...shared.settings.declaration import Shown
from ...shared.strict import FROZEN
from ..cpu_cores import default_threads

DRAFTED_BY_MODEL = 8
"""Default of `--speculate` with a draft model."""

MAX_SERVERS = 16
"""Maximum servers of llama.cpp."""

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", re.ASCII)

LayoutChoice = Literal["auto"] | KvLayout
KernelChoice = Literal["auto"] | Kernels
Counted = Literal[True] | str
"""`True`, or the reason why the option does not count."""

_FAST = "it decides how fast tokens come, and not which"
_ROUNDED = "answers differ by rounding alone, as between any two processors"
_ALIKE = "the cells are the same"
_LAID_OUT = "a state says how its device lays it out, and llama.cpp refuses another"
_SAME_SIZE = "everything takes as much in either case"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The places where an option counts.

    An option that counts in the `fingerprint` or in the `cache`'s identity enters there with its
    value (`LoadOptions.counted`). `memory`: `gguf.memory_estimate` reads the option. `desired`: a
    desired state may contain the option, under the same name. `view`: an agent's view shows the
    option, under the same name.
    """

    fingerprint: Counted
    cache: Counted
    memory: Counted
    desired: Counted = True
    view: Counted = True


_PLACED = Counts(fingerprint=_ROUNDED, cache=_LAID_OUT, memory=True)
_FOR_SPEED = Counts(fingerprint=_FAST, cache=_ALIKE, memory=_SAME_SIZE)
_OF_POSITIONS = Counts(fingerprint=True, cache=True, memory=_SAME_SIZE)
_OF_FIT = Counts(
    fingerprint="what it chooses counts",
    cache="what it chooses counts",
    memory="what it chooses counts",
)
_MODELS_OWN = "the model's own"


def _holds_a_slot(cells: AutoCells, info: ValidationInfo) -> AutoCells:
    context_size = info.data.get("context_size")
    if isinstance(cells, int) and isinstance(context_size, int) and cells < context_size:
        raise ValueError(f"must hold one slot at least, which is {context_size} (context size)")
    return cells


def servers_of(text: str | None) -> tuple[str, ...]:
    """Return the addresses in `HOST:PORT,HOST:PORT`. Raises `ValueError`."""
    servers = tuple(text.split(",")) if text is not None else ()
    for server in servers:
        host, _, port = server.rpartition(":")
        if not (_HOST.fullmatch(host) and port.isdecimal() and 0 < int(port) < 2**16):
            raise ValueError("must be addresses HOST:PORT (IPv4), separated by commas")
    if len(set(servers)) < len(servers):
        raise ValueError("must name each server once")
    if len(servers) > MAX_SERVERS:
        raise ValueError(f"must be at most {MAX_SERVERS} servers")
    return servers


def _servers(text: str) -> str:
    servers_of(text)
    return text


class LoadOptions(BaseModel):
    """The options of an engine. Times are in seconds, sizes in tokens, `host_cache` in bytes."""

    model_config = FROZEN

    slots: Annotated[
        NumSlots, Counts(fingerprint=_FAST, cache="a state is of one sequence", memory=True)
    ] = Field(
        default=4,
        description=(
            "number of requests that the agent computes at once for each model; further requests "
            "wait in the balancer's queue"
        ),
    )
    context_size: Annotated[
        AutoContext,
        Shown("N|auto"),
        Counts(fingerprint=True, cache="a state is of one sequence", memory=True),
    ] = Field(
        default="auto",
        description="maximum length of prompt and answer together in one slot, in tokens; auto "
        "uses the length that the model was trained for, as far as the KV cache holds "
        "it",
    )
    kv_cells: Annotated[
        AutoCells,
        AfterValidator(_holds_a_slot),
        Shown("N|auto"),
        Counts(fingerprint=_FAST, cache=_ALIKE, memory=True),
    ] = Field(
        default="auto",
        description=(
            "size of the KV cache in tokens, shared by all slots. auto uses --slots times "
            "--context-size, or less if memory is short. If --context-size is auto too, the "
            "cache has at most 32,768 tokens, or --slots times --fit-ctx if that is more; with "
            "GPUs it may be larger if their memory allows"
        ),
    )
    fit: Annotated[FitChoice, _OF_FIT] = Field(
        default="on",
        description="choose options that are not set so that the model fits into memory: layers "
        "on GPUs, experts in host memory, the KV cache; off uses the options as set, "
        "and --fit-ctx per slot",
    )
    fit_target: Annotated[FitTarget, Shown("SIZE", "1GiB"), _OF_FIT] = Field(
        default=2**30,
        description=(
            "memory that --fit leaves free on each GPU; on a host without GPUs, in its main memory"
        ),
    )
    fit_ctx: Annotated[
        ContextSize,
        Shown("N"),
        Counts(fingerprint="the context counts", cache=_ALIKE, memory="the context counts"),
    ] = Field(
        default=4096,
        description="smallest KV cache that --fit may choose if the context is auto, in tokens",
    )
    fit_cache_type: Annotated[CacheType | None, Shown("TYPE", "none"), _OF_FIT] = Field(
        default=None,
        description="smaller type of the KV cache (--cache-type-k and -v), such as q8_0, that "
        "--fit may choose before it shortens the context",
    )
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
        description="layout of the KV cache: streams gives each slot a cache of its own, unified "
        "shares one cache; auto uses unified",
    )
    swa_full: Annotated[
        SwaFull,
        Counts(
            fingerprint=_ROUNDED,
            cache="a state has the window in either case",
            memory="the estimate is of full caches, which take more",
        ),
    ] = Field(
        default="auto",
        description="KV cache of layers with a sliding window: on stores all cells; off stores "
        "only the windows of the slots, which saves memory, but each checkpoint (a "
        "prefix that other requests can begin with) copies its window into "
        "--host-cache; auto is off if windows have at most 16 MiB, many fit, and at "
        "least half of the cells are saved",
    )
    flash_attn: Annotated[
        FlashAttn,
        Counts(
            fingerprint=_ROUNDED,
            cache="a state says how its values lie, and llama.cpp refuses another",
            memory=True,
        ),
    ] = Field(
        default="auto",
        description="flash attention: auto uses it if the devices support it; off takes more "
        "memory, and then --cache-type-v cannot be a quantised type",
    )
    cache_type_k: Annotated[
        CacheType, Shown("TYPE"), Counts(fingerprint=True, cache=True, memory=True)
    ] = Field(
        default="f16",
        description=f"type of the keys in the KV cache: {', '.join(get_args(CacheType))}; q8_0 "
        "takes about half the memory of f16, q4_0 about a quarter, at some cost in "
        "quality; types other than f32, f16 and bf16 need heads whose width is a "
        "multiple of 32",
    )
    cache_type_v: Annotated[
        CacheTypeV, Shown("TYPE"), Counts(fingerprint=True, cache=True, memory=True)
    ] = Field(
        default="f16",
        description="type of the values in the KV cache, as with --cache-type-k; types other than "
        "f32, f16 and bf16 need flash attention",
    )
    host_cache: Annotated[
        HostCache,
        Shown("SIZE", "1GiB"),
        Counts(fingerprint=_FAST, cache=_ALIKE, memory=True),
    ] = Field(
        default=2**30,
        description="host memory for prefixes and checkpoints that are evicted from the KV cache; "
        "0 keeps none",
    )
    threads: Annotated[
        NumThreads,
        Shown("N", "physical cores"),
        Counts(fingerprint=_FAST, cache=_ALIKE, memory="what a thread has of its own is little"),
    ] = Field(
        default_factory=default_threads,
        description=("number of threads that the engine computes with"),
    )
    max_stall: Annotated[
        MaxStall,
        Shown("DURATION"),
        Counts(
            fingerprint=_FAST, cache=_ALIKE, memory="buffers are for the largest step in any case"
        ),
    ] = Field(
        default=0.5,
        description="maximum time that reading a prompt may delay running streams. A stream "
        "pauses for this time plus the time of its own step. On CPUs the delay may be 1.15 times "
        "as long",
    )
    threads_batch: Annotated[
        NumThreads | None,
        Shown("N", "same as --threads"),
        Counts(fingerprint=_FAST, cache=_ALIKE, memory="what a thread has of its own is little"),
    ] = Field(
        default=None,
        description="threads of steps with more than one token: steps with a prompt or with "
        "several streams",
    )
    batch_size: Annotated[
        BatchSize | None,
        Shown("N", "same as --ubatch-size"),
        Counts(fingerprint=_FAST, cache=_ALIKE, memory="buffers are for what is computed at once"),
    ] = Field(
        default=None,
        description="maximum tokens of a step; tokens beyond --ubatch-size are computed in "
        "several parts. --max-stall also limits steps",
    )
    ubatch_size: Annotated[UbatchSize, Counts(fingerprint=_ROUNDED, cache=_ALIKE, memory=True)] = (
        Field(
            default=512,
            description="maximum tokens computed at once; raise it for faster prompts on GPUs, at "
            "the cost of memory",
        )
    )
    device: Annotated[Devices | None, Shown("NAME,…", "all GPUs"), _PLACED] = Field(
        default=None,
        description="devices to offload to, in this order, named as in `arriero doctor` (CUDA0, "
        "Vulkan1, Metal); none offloads nothing",
    )
    rpc: Annotated[
        Annotated[str, Field(max_length=MAX_PATTERNS), AfterValidator(_servers)] | None,
        Shown("HOST:PORT,…", "none"),
        Counts(
            fingerprint=_ROUNDED,
            cache=_LAID_OUT,
            memory="it adds devices, whose memory the host's facts have",
            desired="which hosts a host trusts is its own business",
            view="the view has the devices",
        ),
    ] = Field(
        default=None,
        description="llama.cpp's RPC servers (rpc-server), whose devices are used like GPUs of "
        "this host; they have no authentication and no encryption, so use them only "
        "on networks that you trust",
    )
    gpu_layers: Annotated[GpuLayers, Shown("N|auto"), _PLACED] = Field(
        default="auto",
        description="layers to offload to GPUs, if the build supports any; -1 offloads all; auto "
        "offloads as many as fit into free memory, after moving the experts of the "
        "first layers to host memory",
    )
    split_mode: Annotated[
        SplitMode,
        Counts(
            fingerprint=_ROUNDED, cache=_LAID_OUT, memory="the estimate is of all GPUs together"
        ),
    ] = Field(
        default="layer",
        description="how several GPUs share the model: none uses only --main-gpu, layer gives "
        "each GPU whole layers with their KV cache, row gives each GPU rows of every "
        "matrix",
    )
    tensor_split: Annotated[
        TensorSplit | None,
        Shown("N,N,…", "by free memory"),
        Counts(
            fingerprint=_ROUNDED,
            cache=_LAID_OUT,
            memory="the estimate is of all GPUs together",
        ),
    ] = Field(
        default=None,
        description="shares of the model per GPU, relative to each other, in their order: 2,1 "
        "gives the first GPU two thirds",
    )
    main_gpu: Annotated[
        MainGpu,
        Counts(
            fingerprint=_ROUNDED, cache=_LAID_OUT, memory="the estimate is of any one of the GPUs"
        ),
    ] = Field(
        default=0,
        description="index (from 0) of the main GPU among the devices of --device. With "
        "--split-mode none this GPU holds the whole model; with row it holds intermediate results",
    )
    n_cpu_moe: Annotated[NumCpuMoe, _PLACED] = Field(
        default=0,
        description="number of first layers whose experts stay in host memory: for mixtures of "
        "experts larger than the GPU's memory",
    )
    override_tensor: Annotated[
        OverrideTensor | None, Shown("PATTERN=DEVICE,…", "none"), _PLACED
    ] = Field(
        default=None,
        description="device for tensors whose names match a regular expression; the first match "
        "counts: \\.ffn_.*_exps=CPU keeps all experts in host memory",
    )
    kv_offload: Annotated[bool, _PLACED] = Field(
        default=True,
        description="keep the KV cache of offloaded layers on their GPU; if false, it stays in "
        "host memory, which is slower but leaves room for more layers",
    )
    op_offload: Annotated[
        bool,
        Counts(fingerprint=_ROUNDED, cache=_ALIKE, memory="what is copied for a moment is little"),
    ] = Field(
        default=True,
        description="copy weights from host memory to a GPU for steps with many tokens",
    )
    load_mode: Annotated[LoadMode, Shown("MODE"), _FOR_SPEED] = Field(
        default="auto",
        description="how weights are loaded into host memory: auto maps the file unless a device "
        "does not support that, none reads it, mmap maps it, mlock reads and locks "
        "it, mmap+mlock maps and locks it, dio bypasses the system's file cache",
    )
    mlock: Annotated[Mlock, _FOR_SPEED] = Field(
        default=False,
        description="lock weights in host memory, so that they are never swapped out; needs a "
        "sufficient limit (ulimit -l)",
    )
    numa: Annotated[Numa, _FOR_SPEED] = Field(
        default="none",
        description="threads on hosts with several memory nodes: distribute spreads them over all "
        "nodes, isolate keeps them on the node where they start, numactl uses "
        "numactl's map",
    )
    rope_scaling: Annotated[
        RopeScaling | None, Shown("none|linear|yarn", _MODELS_OWN), _OF_POSITIONS
    ] = Field(
        default=None,
        description="how to scale positions for contexts longer than the model was trained for",
    )
    rope_scale: Annotated[RopeScale | None, Shown("N", _MODELS_OWN), _OF_POSITIONS] = Field(
        default=None,
        description="factor by which contexts may be longer than the model was trained for",
    )
    rope_freq_base: Annotated[RopeFreqBase | None, Shown("N", _MODELS_OWN), _OF_POSITIONS] = Field(
        default=None, description="base of the rotary embeddings' frequencies"
    )
    yarn_orig_ctx: Annotated[YarnOrigCtx | None, Shown("N", _MODELS_OWN), _OF_POSITIONS] = Field(
        default=None, description="YaRN: context in tokens that the model was trained for"
    )
    yarn_ext_factor: Annotated[YarnFactor | None, Shown("N", _MODELS_OWN), _OF_POSITIONS] = Field(
        default=None, description="YaRN: share of extrapolation; 0 only interpolates"
    )
    yarn_attn_factor: Annotated[YarnFactor | None, Shown("N", _MODELS_OWN), _OF_POSITIONS] = Field(
        default=None, description="YaRN: factor of the attention's magnitude"
    )
    yarn_beta_slow: Annotated[YarnFactor | None, Shown("N", _MODELS_OWN), _OF_POSITIONS] = Field(
        default=None, description="YaRN: upper bound of the correction range (beta_slow)"
    )
    yarn_beta_fast: Annotated[YarnFactor | None, Shown("N", _MODELS_OWN), _OF_POSITIONS] = Field(
        default=None, description="YaRN: lower bound of the correction range (beta_fast)"
    )
    override_kv: Annotated[
        OverrideKv | None,
        Shown("KEY=TYPE:VALUE,…", "none"),
        Counts(fingerprint=True, cache=True, memory="the file's own values are estimated with"),
    ] = Field(
        default=None,
        description="metadata that replaces the model file's, with a TYPE of int, float, bool or "
        "str, such as qwen3moe.expert_used_count=int:4",
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
        description=(
            "matrix kernels on CPUs: all uses every kernel of llama.cpp; plain uses only "
            "kernels that are safe in every build, but slower. auto means all, unless those "
            "kernels use AMX and the build is not known to be safe"
        ),
    )
    projector: Annotated[
        Path | None,
        Shown("FILE"),
        Counts(
            fingerprint="what the file is counts, and not where it lies (`Preparer.traits`)",
            cache="prompts with media are neither stored nor transferred",
            memory=True,
            view="the model's `tasks` have `vision` or `audio`",
        ),
    ] = Field(
        default=None,
        description="GGUF file of the model's projector for pictures or sounds (mmproj); without "
        "it messages may contain only text",
    )
    speculate: Annotated[
        DraftTokens,
        Counts(fingerprint=_FAST, cache="cells of drafts do not stay", memory=True),
    ] = Field(
        default=0,
        description=(
            "maximum draft tokens per sequence and step (speculative decoding with n-grams); 0 "
            "turns drafting off, or means 8 with --draft-model. Answers stay the same, and "
            "fewer tokens are drafted if drafting does not pay. Each draft token takes memory: "
            "per slot two rows of logits (4 bytes per token of the vocabulary) and, with "
            "recurrent layers, one state, plus one state per checkpoint"
        ),
    )
    draft_model: Annotated[
        Path | None,
        Shown("FILE", "none"),
        Counts(fingerprint=_FAST, cache="it has a cache of its own", memory=True),
    ] = Field(
        default=None,
        description="path of a small GGUF file with the model's vocabulary, which drafts tokens "
        "if that pays, together with n-grams; answers stay the same",
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
        description="always give the same request the same answer, bit for bit, whatever other "
        "requests run. This also holds if a request moves to another agent with this flag. Works "
        "only on CPUs and without pictures, is slower, and turns off drafts",
    )

    @model_validator(mode="after")
    def _is_deterministic_at_all(self) -> Self:
        if self.deterministic and self.kv_layout == "unified":
            raise ValueError("--deterministic: needs streams, not --kv-layout unified")
        if self.deterministic and self.projector is not None:
            raise ValueError("--deterministic: cannot be used with --projector")
        return self

    @property
    def wants_gpus(self) -> bool:
        """Return whether GPUs may be used."""
        return self.gpu_layers != 0 and (self.device is None or bool(devices_of(self.device)))

    @property
    def slot_tokens(self) -> int:
        """The maximum length of a slot, in tokens; the smallest length until one is chosen."""
        return self.fit_ctx if self.context_size == "auto" else self.context_size

    @property
    def num_cells(self) -> int:
        """The cells of all slots; until chosen, enough for the maximum length of each slot."""
        return self.slots * self.slot_tokens if self.kv_cells == "auto" else self.kv_cells

    @property
    def max_draft(self) -> int:
        """Maximum tokens drafted for a sequence in a step."""
        return self.speculate or (DRAFTED_BY_MODEL if self.draft_model else 0)

    @property
    def without_drafts(self) -> "LoadOptions":
        """The same options without drafts, for a model whose sequences cannot drop tokens."""
        return self.model_copy(update={"speculate": 0, "draft_model": None})

    @property
    def step_tokens(self) -> int:
        """Maximum tokens of a step."""
        return self.batch_size or self.ubatch_size

    @property
    def for_draft(self) -> "LoadOptions":
        """The options for a draft model, without options about the served model's file.

        The draft model's cache is small, and of the default type.
        """
        names = (
            *("cache_type_k", "cache_type_v"),
            *("n_cpu_moe", "override_tensor", "override_kv"),
        )
        usual = {name: LoadOptions.model_fields[name].default for name in names}
        return self.without_drafts.model_copy(update=usual)

    @property
    def view(self) -> EngineOptions:
        """The options that an agent's view shows. A draft model's path is not shown."""
        shown = {each.name: getattr(self, each.name) for each in fields(EngineOptions)}
        shown |= {"speculate": self.max_draft, "draft_model": None}
        return EngineOptions(**shown)

    def counted(self, place: Literal["fingerprint", "cache"]) -> tuple[str, ...]:
        """Return the options that count at `place`, with their values."""
        return tuple(
            f"{name}={getattr(self, name)}"
            for name, counts in where_options_count()
            if getattr(counts, place) is True
        )


def where_options_count() -> Iterator[tuple[str, Counts]]:
    """Yield each option's name, with the places where the option counts."""
    for name, field in LoadOptions.model_fields.items():
        counts = next((mark for mark in field.metadata if isinstance(mark, Counts)), None)
        if counts is None:
            raise TypeError(f"the option `{name}` does not say where it counts (`Counts`)")
        yield name, counts
