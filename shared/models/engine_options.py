"""The engine options that a desired state may give, under the names of the agent's settings.

An agent's view shows the values in use under the same names. Each type has its bounds. If a value
depends on another option, the later field of the two is checked, so that the error names a field.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from ..quantities import Duration, Size
from ..strict import STRICT
from .sources import parse_source

MAX_PATH = 4096
"""Maximum characters of a path; Linux allows as many bytes."""

MAX_DRAFT = 64
"""Maximum tokens of a draft; longer drafts make a step longer and save no more steps."""

MAX_LAYERS = 10_000
MAX_NAMES = 1024
"""Maximum characters of a list of devices, or of shares."""

MAX_PATTERNS = 4096
"""Maximum characters of the patterns of tensors, and of replaced metadata."""

GpuLayers = Annotated[int, Field(ge=-1, le=MAX_LAYERS)] | Literal["auto"]
ContextSize = Annotated[int, Field(ge=16, le=2**24)]
AutoContext = ContextSize | Literal["auto"]
AutoCells = Annotated[int, Field(ge=16, le=2**28)] | Literal["auto"]
FitChoice = Literal["on", "off"]
FitTarget = Annotated[Size, Field(ge=0)]
HostCache = Annotated[Size, Field(ge=0)]
NumThreads = Annotated[int, Field(ge=1, le=1024)]
MaxStall = Annotated[Duration, Field(gt=0)]
DraftTokens = Annotated[int, Field(ge=0, le=MAX_DRAFT)]
SwaFull = Literal["auto", "on", "off"]
FlashAttn = Literal["auto", "on", "off"]
SplitMode = Literal["none", "layer", "row"]
MainGpu = Annotated[int, Field(ge=0, lt=64)]
NumCpuMoe = Annotated[int, Field(ge=0, le=MAX_LAYERS)]
LoadMode = Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"]
Numa = Literal["none", "distribute", "isolate", "numactl"]
BatchSize = Annotated[int, Field(ge=64, le=2**16)]
RopeScaling = Literal["none", "linear", "yarn"]
RopeFreqBase = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
YarnOrigCtx = Annotated[int, Field(ge=1, le=2**24)]
YarnFactor = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]

PLAIN_CACHE_TYPES = ("f32", "f16", "bf16")
"""Cache types that store single elements; the other types store blocks of 32 with a scale."""

CACHE_BLOCK = 32
"""Elements of a block of the other cache types."""

CACHE_BLOCK_BYTES: Mapping[CacheType, int] = MappingProxyType(
    {
        "f32": 128,
        "f16": 64,
        "bf16": 64,
        "q8_0": 34,
        "q4_0": 18,
        "q4_1": 20,
        "iq4_nl": 18,
        "q5_0": 22,
        "q5_1": 24,
    }
)
"""Bytes of `CACHE_BLOCK` elements, as ggml lays them out."""


def _is_attended(cache_type: CacheType | None, info: ValidationInfo) -> CacheType | None:
    """Refuse a block type without flash attention, whose kernel alone reads values in blocks."""
    if info.data.get("flash_attn") != "off" or cache_type in (None, *PLAIN_CACHE_TYPES):
        return cache_type
    plain = f"{', '.join(PLAIN_CACHE_TYPES[:-1])} or {PLAIN_CACHE_TYPES[-1]}"
    raise ValueError(f"must be {plain} if flash attention is off (--flash-attn)")


CacheTypeV = Annotated[CacheType, AfterValidator(_is_attended)]


def cache_bytes(num_elements: int, cache_type: CacheType) -> int:
    """Return the bytes of `num_elements` keys or values in a KV cache of `cache_type`."""
    size = 1 if cache_type in PLAIN_CACHE_TYPES else CACHE_BLOCK
    return -(-num_elements // size) * size * CACHE_BLOCK_BYTES[cache_type] // CACHE_BLOCK


def _fits_a_step(ubatch_size: int | None, info: ValidationInfo) -> int | None:
    batch_size = info.data.get("batch_size")
    if ubatch_size is not None and batch_size is not None and ubatch_size > batch_size:
        raise ValueError(f"must be at most the batch size, which is {batch_size} (--batch-size)")
    return ubatch_size


def _scales(rope_scale: float | None, info: ValidationInfo) -> float | None:
    if rope_scale is not None and info.data.get("rope_scaling") == "none":
        raise ValueError("has no effect without scaling (--rope-scaling none)")
    return rope_scale


def _can_be_locked(is_locked: bool | None, info: ValidationInfo) -> bool | None:
    if is_locked and info.data.get("load_mode") == "dio":
        raise ValueError("cannot be used if files are read with direct I/O (--load-mode dio)")
    return is_locked


UbatchSize = Annotated[BatchSize, AfterValidator(_fits_a_step)]
RopeScale = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False), AfterValidator(_scales)]
Mlock = Annotated[bool, AfterValidator(_can_be_locked)]


# ---- options that are lists: texts, written as for llama.cpp's own programs


_DEVICE = re.compile(r"[\w.:+\[\]-]{1,100}", re.ASCII)
"""ggml's name of a device, or of a device's memory: `CUDA0`, `RPC0[127.0.0.1:50052]`."""

_KEY = re.compile(r"[\w.:+-]{1,127}", re.ASCII)

NO_DEVICE = "none"
"""Value of `device` that offloads nothing."""


def devices_of(text: str) -> tuple[str, ...]:
    """Return the names in `CUDA0,CUDA1`; `none` gives no names. Raises `ValueError`."""
    names = tuple(text.split(","))
    if not all(map(_DEVICE.fullmatch, names)) or (NO_DEVICE in names and len(names) > 1):
        raise ValueError("must be names of devices separated by commas, or none")
    if len(set(names)) < len(names):
        raise ValueError("must name each device once")
    return () if names == (NO_DEVICE,) else names


def shares_of(text: str) -> tuple[float, ...]:
    """Return the shares in `text`, such as `3,1`; only their ratio counts.

    Raises `ValueError`.
    """
    try:
        shares = tuple(map(float, text.split(",")))
    except ValueError:
        shares = ()
    if not any(shares) or not all(isfinite(share) and share >= 0 for share in shares):
        raise ValueError("must be numbers separated by commas, such as 3,1, and not all 0")
    return shares


def placements_of(text: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs in `PATTERN=BUFFER,…`: a pattern of tensors, and their buffer.

    Raises `ValueError`.
    """
    found = []
    for part in text.split(","):
        pattern, _, buffer = part.rpartition("=")
        if not pattern or not _DEVICE.fullmatch(buffer):
            raise ValueError(
                "must be PATTERN=DEVICE, or several separated by commas, such as "
                r"\.ffn_.*_exps=CPU"
            )
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(
                f"must have regular expressions of tensor names; {pattern} is not one: {error}"
            ) from error
        found.append((pattern, buffer))
    return tuple(found)


Metadata = bool | int | float | str


def metadata_of(text: str) -> dict[str, Metadata]:
    """Return the values in `KEY=TYPE:VALUE,…` by key. Raises `ValueError`."""
    found: dict[str, Metadata] = {}
    for part in _csv_row(text):
        key, _, rest = part.partition("=")
        kind, colon, value = rest.partition(":")
        if not _KEY.fullmatch(key) or not colon or kind not in _METADATA:
            kinds = ", ".join(_METADATA)
            raise ValueError(
                f"must be KEY=TYPE:VALUE, or several separated by commas; TYPE is one of {kinds}"
            )
        if key in found:
            raise ValueError(f"must name each key once, and names {key} twice")
        try:
            found[key] = _METADATA[kind](value)
        except (KeyError, ValueError) as error:
            raise ValueError(f"must have a value of {key} that is {_WORDS[kind]}") from error
    return found


def _csv_row(text: str) -> Iterator[str]:
    """Yield the parts between commas; a part in quotation marks may contain commas."""
    for match in re.finditer(r'(?:^|,)("(?:[^"]|"")*"|[^,]*)', text):
        part = match[1]
        yield part[1:-1].replace('""', '"') if part[:1] == '"' and len(part) > 1 else part


def _integer(text: str) -> int:
    number = int(text)
    if abs(number) >= 2**63:
        raise ValueError("an integer has 64 bits")
    return number


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError("a number is finite")
    return number


def _short(text: str) -> str:
    if len(text.encode()) > 127:
        raise ValueError("a text has at most 127 bytes")
    return text


_METADATA: Mapping[str, Callable[[str], Metadata]] = {
    "int": _integer,
    "float": _finite,
    "bool": {"true": True, "false": False}.__getitem__,
    "str": _short,
}
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text of at most 127 bytes",
}


def _text(parse: Callable[[str], object]) -> AfterValidator:
    """Return a validator that accepts the texts which `parse` accepts."""

    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


Devices = Annotated[str, Field(max_length=MAX_NAMES), _text(devices_of)]
TensorSplit = Annotated[str, Field(max_length=MAX_NAMES), _text(shares_of)]
OverrideTensor = Annotated[str, Field(max_length=MAX_PATTERNS), _text(placements_of)]
OverrideKv = Annotated[str, Field(max_length=MAX_PATTERNS), _text(metadata_of)]


def _source_or_path(text: str) -> str:
    if not text.startswith("/"):
        parse_source(text)
    elif len(text) > MAX_PATH or not text.isprintable():
        raise ValueError(f"must be an absolute path of at most {MAX_PATH} characters, or a source")
    return text


_UNSET = Field(exclude_if=lambda value: value is None)
"""A field that is serialized only if it is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The options with which the engine runs the model, under the names of the agent's settings.

    `None` leaves a value to the agent. `max_stall` is in seconds, `host_cache` in bytes;
    `draft_model` is a path on the agent's host, or a source. Lists (`device`, `tensor_split`,
    `override_tensor`, `override_kv`) are texts in the format of llama.cpp's own programs.
    """

    __pydantic_config__ = STRICT
    gpu_layers: GpuLayers | None = None
    kv_cells: AutoCells | None = None
    fit: Annotated[FitChoice | None, _UNSET] = None
    fit_target: Annotated[FitTarget | None, _UNSET] = None
    fit_ctx: Annotated[ContextSize | None, _UNSET] = None
    fit_cache_type: Annotated[CacheType | None, _UNSET] = None
    host_cache: HostCache | None = None
    threads: NumThreads | None = None
    max_stall: MaxStall | None = None
    speculate: DraftTokens | None = None
    deterministic: Annotated[bool | None, _UNSET] = None
    draft_model: (
        Annotated[str, Field(max_length=MAX_PATH), AfterValidator(_source_or_path)] | None
    ) = None
    swa_full: Annotated[SwaFull | None, _UNSET] = None
    flash_attn: Annotated[FlashAttn | None, _UNSET] = None
    cache_type_k: Annotated[CacheType | None, _UNSET] = None
    cache_type_v: Annotated[CacheTypeV | None, _UNSET] = None
    device: Annotated[Devices | None, _UNSET] = None
    split_mode: Annotated[SplitMode | None, _UNSET] = None
    tensor_split: Annotated[TensorSplit | None, _UNSET] = None
    main_gpu: Annotated[MainGpu | None, _UNSET] = None
    n_cpu_moe: Annotated[NumCpuMoe | None, _UNSET] = None
    override_tensor: Annotated[OverrideTensor | None, _UNSET] = None
    kv_offload: Annotated[bool | None, _UNSET] = None
    op_offload: Annotated[bool | None, _UNSET] = None
    load_mode: Annotated[LoadMode | None, _UNSET] = None
    mlock: Annotated[Mlock | None, _UNSET] = None
    numa: Annotated[Numa | None, _UNSET] = None
    threads_batch: Annotated[NumThreads | None, _UNSET] = None
    batch_size: Annotated[BatchSize | None, _UNSET] = None
    ubatch_size: Annotated[UbatchSize | None, _UNSET] = None
    rope_scaling: Annotated[RopeScaling | None, _UNSET] = None
    rope_scale: Annotated[RopeScale | None, _UNSET] = None
    rope_freq_base: Annotated[RopeFreqBase | None, _UNSET] = None
    yarn_orig_ctx: Annotated[YarnOrigCtx | None, _UNSET] = None
    yarn_ext_factor: Annotated[YarnFactor | None, _UNSET] = None
    yarn_attn_factor: Annotated[YarnFactor | None, _UNSET] = None
    yarn_beta_slow: Annotated[YarnFactor | None, _UNSET] = None
    yarn_beta_fast: Annotated[YarnFactor | None, _UNSET] = None
    override_kv: Annotated[OverrideKv | None, _UNSET] = None
