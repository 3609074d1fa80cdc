"""The models of an upstream server, from `/v1/models`, and the choice of one."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from .failures import UpstreamFault

MAX_SHOWN = 10
"""Maximum names in a message."""
MAX_NAME = 300

_PATH = re.compile(r"~?/|\.{1,2}/|[A-Za-z]:[/\\]|\\\\")
"""Matches the beginning of a path; `org/model` is a name of a hub."""

_SIZES = ("max_model_len", "context_length", "max_context_length", "loaded_context_length")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """One model. `context_size` is 0 if the server does not report it.

    `root` is the model for which the name stands. `is_derived`: it is an adapter of another model.
    """

    id: str
    owner: str | None = None
    context_size: int = 0
    root: str | None = None
    is_derived: bool = False


class NoSuchModel(Exception):
    """The server does not have the model, or has several models and none was named."""


def listed(body: bytes) -> tuple[ListedModel, ...]:
    """Return the models in the answer to GET `/v1/models`. Raises `UpstreamFault`."""
    try:
        data = from_json(body)["data"]
        return tuple(_model(entry) for entry in data or ())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UpstreamFault("its /v1/models does not have the form of OpenAI's API") from error


def _model(entry: dict[str, Any]) -> ListedModel:
    name = entry["id"]
    if not isinstance(name, str):
        raise TypeError("an id is a string")
    owner, root = entry.get("owned_by"), entry.get("root")
    return ListedModel(
        id=name,
        owner=owner if isinstance(owner, str) else None,
        context_size=_context_size(entry),
        root=root if isinstance(root, str) else None,
        is_derived=bool(entry.get("parent")),
    )


def _context_size(entry: dict[str, Any]) -> int:
    meta = entry.get("meta")
    sizes = [entry.get(name) for name in _SIZES]
    sizes += [meta.get("n_ctx")] if isinstance(meta, dict) else []
    return next((each for each in sizes if isinstance(each, int) and each > 0), 0)


def choose(models: Sequence[ListedModel], name: str | None) -> ListedModel:
    """Return the model called `name`; without a name, the only model.

    Raises `NoSuchModel`, which names the flag.
    """
    if name is not None:
        found = next((each for each in models if name in _names(each)), None)
        if found is None:
            raise NoSuchModel(f"--upstream-model: it has no model {name}{_shown(models)}")
        return found
    distinct = {each.root or each.id: each for each in reversed(models) if not each.is_derived}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    if not distinct:
        raise NoSuchModel("it has no model at present")
    raise NoSuchModel(f"--upstream-model: must name a model{_shown(models)}")


def shown_name(id: str) -> str:
    """Return clients' name for a model that the server calls `id`; the last part of a path."""
    if not _PATH.match(id):
        return id
    return re.split(r"[/\\]", id.rstrip("/\\"))[-1] or id


def _names(model: ListedModel) -> tuple[str, ...]:
    """Return a model's names: Ollama omits the tag `latest`, Gemini the folder."""
    return (model.id, model.id.removesuffix(":latest"), model.id.removeprefix("models/"))


def _shown(models: Sequence[ListedModel]) -> str:
    names = [each.id[:MAX_NAME] for each in models]
    more = ", …" if len(names) > MAX_SHOWN else ""
    return f"; it has {', '.join(names[:MAX_SHOWN])}{more}" if names else "; it has none"
