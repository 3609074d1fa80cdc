"""The desired state: the models that the fleet should serve."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from ...shared.inference.adapters import adapted_name
from ...shared.labels import Labels
from ...shared.models.assignments import (
    MAX_TEMPLATE,
    Assignment,
    DesiredAdapters,
    ModelName,
    NumSlots,
    Sha256,
)
from ...shared.models.engine_options import AutoContext, EngineOptions
from ...shared.models.sources import Source
from ...shared.quantities import Duration
from ...shared.sampling import SamplingChoices
from ...shared.strict import STRICT, ListOf

MAX_MODELS = 256
MAX_ALIASES = 16
MAX_REPLICAS = 4096

Replicas = Annotated[int, Field(ge=0, le=MAX_REPLICAS)] | Literal["all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChoice:
    """Which agents may serve a model: `replicas` agents that have all of `labels`.

    `"all"` stands for every agent that no other model needs.
    """

    __pydantic_config__ = STRICT
    labels: Labels = field(default_factory=dict)
    replicas: Replicas = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredModel:
    """A model that the fleet should serve, under its `name` and its `aliases`.

    With `preload` it is loaded at once, otherwise at its first request. After `idle_timeout`
    seconds without use it may be unloaded, and is loaded again on demand; `null`: it is never
    unloaded. `projector` is the source of the part that reads pictures. `adapters` are served
    together with the model. The other fields are options for the agents' engines.
    """

    __pydantic_config__ = STRICT
    name: ModelName
    aliases: Annotated[ListOf[ModelName], Field(max_length=MAX_ALIASES)] = ()
    source: Source
    sha256: Sha256 | None = None
    projector: Source | None = None
    adapters: DesiredAdapters = ()
    agents: AgentChoice = field(default_factory=AgentChoice)
    slots: NumSlots | None = None
    context_size: AutoContext | None = None
    engine: EngineOptions = field(default_factory=EngineOptions)
    chat_template: Annotated[str, Field(min_length=1, max_length=MAX_TEMPLATE)] | None = None
    sampling: SamplingChoices = field(default_factory=SamplingChoices)
    idle_timeout: Annotated[Duration, Field(gt=0)] | None = None
    preload: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """All names that clients may ask for."""
        return (self.name, *self.aliases)

    @property
    def adapted_names(self) -> tuple[str, ...]:
        """The model's names with each of its adapters."""
        return tuple(adapted_name(self.name, each.name) for each in self.adapters)

    @property
    def assignment(self) -> Assignment:
        """The assignment of an agent that serves this model."""
        return Assignment(
            name=self.name,
            source=self.source,
            sha256=self.sha256,
            projector=self.projector,
            adapters=self.adapters or None,
            slots=self.slots,
            context_size=self.context_size,
            engine=self.engine,
            chat_template=self.chat_template,
            sampling=self.sampling,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """The models that the fleet should serve. Earlier models get agents first."""

    __pydantic_config__ = STRICT
    models: tuple[DesiredModel, ...] = ()


def changed_models(before: DesiredState, after: DesiredState) -> str | None:
    """Return the models that were added (+), removed (-) and changed (~); `None` if none was."""
    old = {model.name: model for model in before.models}
    new = {model.name: model for model in after.models}
    words = [f"+ {name}" for name in new if name not in old]
    words += [f"- {name}" for name in old if name not in new]
    words += [f"~ {name}" for name, model in new.items() if old.get(name, model) != model]
    if not words and before != after:
        words = ["their order"]
    return ", ".join(words) or None
