"""How two desired states differ, model by model."""

import json
from collections.abc import Iterator
from typing import Any, Literal

_DEFAULTS = {"agents": {"labels": {}, "replicas": "all"}, "preload": True}
"""What the balancer fills in where a model does not say."""

Sign = Literal["+", "-", "~", " "]


def changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[Sign, str]]:
    """A sign and a line for each model that comes, goes or changes, or stays as it is.

    A value that `new` leaves out is the balancer's default.
    """
    before = {model["name"]: model for model in old.get("models", ())}
    after = {str(model.get("name")): model for model in new.get("models", ())}
    for name, model in after.items():
        if name not in before:
            yield "+", f"{name} from {model.get('source')}"
            continue
        different = list(_fields(before[name], model))
        yield ("~", f"{name}: {', '.join(different)}") if different else (" ", name)
    for name in before:
        if name not in after:
            yield "-", name


def _fields(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for key in new:
        if old.get(key) != new[key]:
            yield f"{key} {_shown(old.get(key))} -> {_shown(new[key])}"
    for key, value in old.items():
        if key not in new and value not in (None, [], {}, _DEFAULTS.get(key)):
            yield f"{key} {_shown(value)} -> default"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:39] + "…"
