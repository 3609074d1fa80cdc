"""The desired state: the models that the fleet should serve, and its JSON.

The JSON is checked as a whole, and all problems are named at once. Durations and sizes may have
units (`15m`, `2GiB`); they are returned in seconds and bytes.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from ...shared.errors import InvalidRequest, RequestTooLarge
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
from ...shared.models.sources import Source, check_http
from ...shared.quantities import Duration
from ...shared.sampling import SamplingChoices
from ...shared.strict import STRICT, ListOf
from ...shared.validation import Problem, all_problems, echo

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
    seconds without use it may be unloaded, and is loaded again on demand; with `null` it is never
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
        """All names by which clients may ask for the model."""
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
    """Return the models added (+), removed (-) and changed (~); `None` without changes."""
    old = {model.name: model for model in before.models}
    new = {model.name: model for model in after.models}
    words = [f"+ {name}" for name in new if name not in old]
    words += [f"- {name}" for name in old if name not in new]
    words += [f"~ {name}" for name, model in new.items() if old.get(name, model) != model]
    if not words and before != after:
        words = ["their order"]
    return ", ".join(words) or None


# ---- as JSON

MAX_BYTES = 4 * 2**20
MAX_VALUES = 50_000
"""Maximum values in the JSON of a desired state, including nested values."""

MAX_PROBLEMS_SHOWN = 20
"""Maximum problems in the sentence of an error; further problems are counted."""


class InvalidDesiredState(InvalidRequest):
    """A desired state with its problems."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        shown = "; ".join(problem.sentence for problem in problems[:MAX_PROBLEMS_SHOWN])
        left_out = len(problems) - MAX_PROBLEMS_SHOWN
        more = f"; and {left_out} more" if left_out > 0 else ""
        super().__init__(shown + more, field=problems[0].field)
        self.problems = problems


_ADAPTER: TypeAdapter[DesiredState] = TypeAdapter(DesiredState)
_ENGINE: TypeAdapter[EngineOptions] = TypeAdapter(EngineOptions)
_SAMPLING: TypeAdapter[SamplingChoices] = TypeAdapter(SamplingChoices)


def parse_desired_state(
    body: str | bytes, *, http_hosts: Collection[str] | None = None
) -> DesiredState:
    """Return the desired state in the JSON `body`.

    Raises an `InvalidRequest` that names every problem.

    Sources without TLS must be on `http_hosts`; `None` accepts all, for a state that was checked
    earlier.
    """
    _check_size(body)
    try:
        state = _ADAPTER.validate_json(body)
    except ValidationError as error:
        raise InvalidDesiredState(all_problems(error, body)) from error
    problems = tuple(_repeated_names(state))
    if http_hosts is not None:
        problems += tuple(_open_sources(state, http_hosts))
    if problems:
        raise InvalidDesiredState(problems)
    return state


def _check_size(body: str | bytes) -> None:
    """Refuse a document that would take long to check, because each value may have an error."""
    if len(body) > MAX_BYTES:
        raise RequestTooLarge(
            f"a desired state must have at most {MAX_BYTES} bytes, not {len(body)}"
        )
    try:
        document = from_json(body)
    except ValueError:
        return  # the check itself says where
    models = document.get("models") if isinstance(document, dict) else None
    if isinstance(models, list) and len(models) > MAX_MODELS:
        message = f"`models` must have at most {MAX_MODELS} entries, not {len(models)}"
        raise InvalidDesiredState((Problem("models", message),))
    if len(list(islice(_values(document), MAX_VALUES + 1))) > MAX_VALUES:
        raise RequestTooLarge(f"a desired state must have at most {MAX_VALUES} values")


def _values(document: object) -> Iterator[object]:
    waiting = [document]
    while waiting:
        value = waiting.pop()
        yield value
        if isinstance(value, dict):
            waiting += islice(value.values(), MAX_VALUES)
        elif isinstance(value, list):
            waiting += islice(value, MAX_VALUES)


def desired_state_json(state: DesiredState) -> bytes:
    """Return `state` as JSON for `parse_desired_state`, without options that were not set."""
    return to_json(desired_state_fields(state))


def desired_state_fields(state: DesiredState) -> dict[str, Any]:
    """Return `state` as JSON values."""
    fields: dict[str, Any] = _ADAPTER.dump_python(state, mode="json")
    for model, written in zip(state.models, fields["models"], strict=True):
        written["engine"] = _ENGINE.dump_python(model.engine, mode="json", exclude_defaults=True)
        written["sampling"] = _SAMPLING.dump_python(
            model.sampling, mode="json", exclude_defaults=True
        )
    return fields


def _repeated_names(state: DesiredState) -> Iterator[Problem]:
    """Yield names, aliases and adapters that an earlier entry has already."""
    owners: dict[str, str] = {}
    for index, model in enumerate(state.models):
        for own, name in _named(model):
            path = f"models[{index}].{own}"
            owner = owners.setdefault(name, path)
            if owner != path:
                yield Problem(path, f"`{path}` must be unique, but `{owner}` is also {echo(name)}")


def _open_sources(state: DesiredState, http_hosts: Collection[str]) -> Iterator[Problem]:
    """Yield sources without TLS that no operator allows."""
    for index, model in enumerate(state.models):
        for own, source in _sources(model):
            path = f"models[{index}].{own}"
            try:
                check_http(source, http_hosts)
            except ValueError as error:
                yield Problem(path, f"`{path}` {error}, not {echo(source)}")


def _sources(model: DesiredModel) -> Iterator[tuple[str, str]]:
    """Yield all files of a model, with the fields that name them."""
    yield "source", model.source
    if model.projector is not None:
        yield "projector", model.projector
    if model.engine.draft_model is not None:
        yield "engine.draft_model", model.engine.draft_model
    for number, adapter in enumerate(model.adapters):
        yield f"adapters[{number}].source", adapter.source


def _named(model: DesiredModel) -> Iterator[tuple[str, str]]:
    """Yield the names that clients can use, each with its field."""
    yield "name", model.name
    for number, alias in enumerate(model.aliases):
        yield f"aliases[{number}]", alias
    for number, name in enumerate(model.adapted_names):
        yield f"adapters[{number}].name", name
