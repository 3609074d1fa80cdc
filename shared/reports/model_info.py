"""The model that an agent serves, as the agent describes it."""

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field

from ..inference import NumTokens
from ..inference.abilities import ABILITIES, Ability
from ..inference.adapters import MAX_ADAPTERS, AdapterName
from ..inference.request import Sense
from ..models.assignments import MAX_MODEL_NAME, Bytes, MemoryParts
from ..models.engine_options import EngineOptions
from ..strict import STRICT, ListOf

MAX_TASKS = 16
MAX_FINGERPRINT = 64
MAX_ABILITIES = 64
MAX_ARCHITECTURE = 100
MAX_FIT = 4096
"""Most characters of a sentence about each of many devices."""

Task = Literal["generate", "embed", "rank", "vision", "audio"]
Kernels = Literal["all", "plain"]
"""Kernels of llama.cpp on CPUs: all, or none that have a layout of weights of their own."""
_SENSES: frozenset[Ability] = frozenset(get_args(Sense))
KvLayout = Literal["streams", "unified"]
"""A KV cache of its own for each sequence, or one for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The server that an agent forwards to: its `kind`, and its `address` without credentials.

    `abilities` are those of `inference.abilities` that it has, ordered by name; names that are not
    known there count for nothing.
    """

    __pydantic_config__ = STRICT
    kind: Annotated[str, Field(max_length=100)]
    address: Annotated[str, Field(max_length=300)]
    abilities: Annotated[
        ListOf[Annotated[str, Field(max_length=64)]], Field(max_length=MAX_ABILITIES)
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The model an agent serves. `name` is what clients ask for; sizes are in bytes and tokens.

    `tasks` is what it can do, besides tokenising; `vision` is reading pictures in messages, `audio`
    hearing sounds there. One that `chats` has a chat template that works. `context_size` is the
    ceiling of a slot.
    `longest_token` is the most bytes of a text that one token can stand for; 0 where that has no
    bound, because the tokenizer drops a part of the text. `kernels` is what the weights were loaded
    for, `kv_layout` how the KV cache is divided among sequences. Agents whose models have the same
    `fingerprint` can go on with each other's answers; one without cannot. `draft_model` is the name
    of a small model that drafts for it. `upstream`: another server runs it, and the agent forwards
    to that. Such an agent may not know its `context_size`, which is 0 then. `adapters` can be asked
    for beside the model. A `deterministic` one gives the same answer to the same request, whatever
    runs beside it. `engine` has the options that it is loaded with, where an engine of the agent's
    own runs it. `quantization` is what most of its weights are stored as (`Q4_K_M`), where the file
    says so. `fit` says what was chosen of them so that the model fits, and `memory` what it
    takes of each device and of the host, where that is known.
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
        """What requests may need of it: all there is, unless its upstream lacks something.

        Pictures and sounds are tasks as well, and only those that have these take them. Without a
        chat template that works, messages cannot be answered.
        """
        able = ABILITIES - _SENSES.difference(self.tasks)
        if not self.chats:
            able -= {"messages"}
        return able if self.upstream is None else able.intersection(self.upstream.abilities)
