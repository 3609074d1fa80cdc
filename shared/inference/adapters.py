"""Adapters (LoRA) of a model, as requests choose them."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, StringConstraints

from ..strict import STRICT, ListOf

MAX_ADAPTERS = 64
"""Most adapters beside a model, and most of one request."""

AdapterName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")]
"""No colons: the whole name is that of the model, a colon, and this."""

MAX_SCALE = 100

Scale = Annotated[float, Field(ge=-MAX_SCALE, le=MAX_SCALE, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterChoice:
    """An adapter that applies to a request; `scale` is its own unless it is given."""

    __pydantic_config__ = STRICT
    name: AdapterName
    scale: Scale | None = None


AdapterChoices = Annotated[ListOf[AdapterChoice], Field(max_length=MAX_ADAPTERS)]


def adapted_name(model: str, adapter: str) -> str:
    """What clients call `model` under `adapter`."""
    return f"{model}:{adapter}"
