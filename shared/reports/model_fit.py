"""What a host would choose for a model, before it downloads the model."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from ..models.assignments import Bytes, NumSlots
from ..models.engine_options import MAX_LAYERS, CacheType, ContextSize
from ..strict import STRICT

MAX_SAID = 2000
"""Characters of a choice in words."""

NumLayers = Annotated[int, Field(ge=0, le=MAX_LAYERS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFit:
    """The choice, with the memory that is free beside what the host runs now; `said` in words.

    The model's files have `file_bytes`. With `missing` bytes even the least that can be chosen is
    more than there is room for, and `nearest` says in words what would do, if that is known.
    `slots` of `context_size` tokens share `cells`. `gpu_layers` of the last layers go to GPUs, the
    output being one, and of them not the experts of the first `cpu_experts` layers.
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
