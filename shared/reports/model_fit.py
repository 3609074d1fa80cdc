"""The options that a host would choose for a model, before it downloads the model."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from ..models.assignments import Bytes, NumSlots
from ..models.engine_options import MAX_LAYERS, CacheType, ContextSize
from ..strict import STRICT

MAX_SAID = 2000
"""Maximum characters of a choice in words."""

NumLayers = Annotated[int, Field(ge=0, le=MAX_LAYERS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFit:
    """The options chosen for the memory that is free now; `said` has them in words.

    `file_bytes` is the size of the model's files. If even the smallest options need `missing` more
    bytes, `nearest` says in words what would fit, if that is known. `slots` of `context_size`
    tokens share `cells`. The last `gpu_layers` layers are on GPUs, the output layer counted; the
    experts of the first `cpu_experts` layers stay on the CPU.
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
