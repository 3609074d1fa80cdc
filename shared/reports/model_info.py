"""An agent's description of the model that it serves, and the options that it would choose."""

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field

from ..inference import NumTokens
from ..inference.abilities import ABILITIES, Ability
from ..inference.adapters import MAX_ADAPTERS, AdapterName
from ..inference.request import Sense
from ..models.assignments import MAX_MODEL_NAME, Bytes, MemoryParts, NumSlots
from ..models.engine_options import MAX_LAYERS, CacheType, ContextSize, EngineOptions
from ..strict import STRICT, ListOf

MAX_TASKS = 16
MAX_FINGERPRINT = 64
MAX_ABILITIES = 64
MAX_ARCHITECTURE = 100
MAX_FIT = 4096
"""Maximum characters of a sentence about each of many devices."""

Task = Literal["generate", "embed", "rank", "vision", "audio"]
Kernels = Literal["all", "plain"]
"""llama.cpp's CPU kernels: all, or without those that repack the weights."""
_SENSES: frozenset[Ability] = frozenset(get_args(Sense))
KvLayout = Literal["streams", "unified"]
"""A KV cache for each sequence, or one for all sequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The server that an agent forwards to: its `kind`, and its `address` without credentials.

    `abilities` are the server's abilities by the names of `inference.abilities`, sorted; unknown
    names are ignored.
    """

    __pydantic_config__ = STRICT
    kind: Annotated[str, Field(max_length=100)]
    address: Annotated[str, Field(max_length=300)]
    abilities: Annotated[
        ListOf[Annotated[str, Field(max_length=64)]], Field(max_length=MAX_ABILITIES)
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The model that an agent serves. `name` is its name in requests.

    `tasks` is what the model can do, besides tokenizing; `vision` is reading pictures in messages,
    `audio` hearing sounds there. A model that `chats` has a chat template that works.
    `context_size` is the maximum context of a slot; 0 if an agent that forwards does not know it.
    `longest_token` is the maximum bytes of text that one token can stand for; 0 if there is no
    maximum, because the tokenizer drops a part of the text. `quantization` is the type of most of
    its weights (`Q4_K_M`), if the file has it.

    Agents whose models have the same `fingerprint` can continue each other's answers; an agent
    without a fingerprint cannot. `draft_model` is the name of the model that drafts for this
    model. `upstream` is the server to which the agent forwards. `adapters` are the adapters that
    requests can name. A `deterministic` model gives the same answer to the same request, whatever
    else runs.

    `engine` has the engine options in use, if the agent has an engine of its own. `kernels` is the
    kind of kernels for which the weights were loaded; `kv_layout` says whether sequences share a
    KV cache. `fit` says which options were chosen so that the model fits. `memory` is the memory
    that it takes of each device and of the host, if known.
    """

    __pydantic_config__ = STRICT
    name: Annotated[str, Field(max_length=MAX_MODEL_NAME)]
    architecture: Annotated[str, Field(max_length=MAX_ARCHITECTURE)]
    parameters: Bytes
    size_bytes: Bytes
    context_size: NumTokens
    tasks: Annotated[ListOf[Task], Field(max_length=MAX_TASKS)] = ("generate",)
    longest_token: NumTokens = 0
    kernels: Kernels | None = None
    kv_layout: KvLayout | None = None
    fingerprint: Annotated[str, Field(max_length=MAX_FINGERPRINT)] | None = None
    upstream: Upstream | None = None
    draft_model: Annotated[str, Field(max_length=MAX_MODEL_NAME)] | None = None
    adapters: Annotated[
        ListOf[AdapterName], Field(max_length=MAX_ADAPTERS, exclude_if=lambda names: not names)
    ] = ()
    chats: Annotated[bool, Field(exclude_if=lambda can: can)] = True
    deterministic: Annotated[bool, Field(exclude_if=lambda is_on: not is_on)] = False
    engine: Annotated[EngineOptions | None, Field(exclude_if=lambda options: options is None)] = (
        None
    )
    quantization: Annotated[str, Field(max_length=32, exclude_if=lambda name: not name)] = ""
    fit: Annotated[
        str | None, Field(max_length=MAX_FIT, exclude_if=lambda words: words is None)
    ] = None
    memory: MemoryParts = ()

    @property
    def abilities(self) -> frozenset[Ability]:
        """The abilities of the model that requests may need: all, unless its upstream lacks some.

        Pictures and sounds need the task of the same name. Without a working chat template, the
        model cannot answer messages.
        """
        able = ABILITIES - _SENSES.difference(self.tasks)
        if not self.chats:
            able -= {"messages"}
        return able if self.upstream is None else able.intersection(self.upstream.abilities)


MAX_SAID = 2000
"""Maximum characters of a choice in words."""

NumLayers = Annotated[int, Field(ge=0, le=MAX_LAYERS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFit:
    """The options chosen for the memory that is free now; `said` has them in words.

    `file_bytes` is the size of the model's files. If even the smallest options need `missing` more
    bytes, `nearest` describes options that would fit, if any are known. `slots` of `context_size`
    tokens share `cells`. The last `gpu_layers` layers are on GPUs; the output layer counts as one.
    The experts of the first `cpu_experts` layers stay on the CPU.
    """

    __pydantic_config__ = STRICT
    said: Annotated[str, Field(max_length=MAX_SAID)]
    file_bytes: Bytes
    missing: Bytes = 0
    nearest: Annotated[str, Field(max_length=MAX_SAID)] = ""
    slots: NumSlots
    context_size: ContextSize
    cells: Annotated[int, Field(ge=0, le=2**32)]
    gpu_layers: NumLayers = 0
    cpu_experts: NumLayers = 0
    cache_type_k: CacheType
    cache_type_v: CacheType
