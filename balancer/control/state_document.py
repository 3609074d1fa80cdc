"""A desired state as JSON: read, checked as a whole with all problems named at once, and written.

Durations and sizes may have units (`15m`, `2GiB`); they are returned in seconds and bytes.
"""

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from ...shared.errors import InvalidRequest, RequestTooLarge
from ...shared.models.engine_options import EngineOptions
from ...shared.models.sources import check_http
from ...shared.sampling import SamplingChoices
from ...shared.validation import Problem, all_problems, echo
from .desired_state import MAX_MODELS, DesiredModel, DesiredState

MAX_BYTES = 4 * 2**20
MAX_VALUES = 50_000
"""Most values in the JSON of a desired state, nested ones among them."""

MAX_PROBLEMS_SHOWN = 20
"""Problems in the sentence of an error; further ones are counted."""


class InvalidDesiredState(InvalidRequest):
    """A desired state with all of its problems."""

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

    Raises `InvalidRequest` that names every problem.

    Sources without TLS must be on `http_hosts`; `None` accepts all, for a state that was checked
    before.
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
    """Return `state` in the form that `parse_desired_state` reads; options that were not set are
    left out."""
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
        for field, name in _named(model):
            path = f"models[{index}].{field}"
            owner = owners.setdefault(name, path)
            if owner != path:
                yield Problem(path, f"`{path}` must be unique, but `{owner}` is also {echo(name)}")


def _open_sources(state: DesiredState, http_hosts: Collection[str]) -> Iterator[Problem]:
    """Yield sources without TLS that no operator allows."""
    for index, model in enumerate(state.models):
        for field, source in _sources(model):
            path = f"models[{index}].{field}"
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
