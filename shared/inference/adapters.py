"""The adapters (LoRA) of a model, as requests choose them."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, StringConstraints

from ..strict import STRICT, ListOf

MAX_ADAPTERS = 64
"""Maximum adapters of a model, and of a request."""

AdapterName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")]
"""An adapter's name has no colon: clients write the model's name, a colon, and this name."""

MAX_SCALE = 100

Scale = Annotated[float, Field(ge=-MAX_SCALE, le=MAX_SCALE, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterChoice:
    """An adapter that applies to a request; without `scale` it has its own scale."""

    __pydantic_config__ = STRICT
    name: AdapterName
    scale: Scale | None = None


AdapterChoices = Annotated[ListOf[AdapterChoice], Field(max_length=MAX_ADAPTERS)]


def adapted_name(model: str, adapter: str) -> str:
    """Return the model name by which clients ask for `model` with `adapter`."""
    return f"{model}:{adapter}"
