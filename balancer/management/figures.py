"""Answers made of figures, and their types (`shared/reports/figures.py`)."""

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import TypedDict

from ...shared.reports.figures import FoundFigure, figures_of

Json = dict[str, Any]
_TYPED_DICT: Any = TypedDict


def answer_of(report: object) -> Json:
    """The figures of a report that have names in answers. A part that is not there is null."""
    body: Json = {}
    for found in _named(type(report)):
        value = found.of(report)
        group, _, name = found.figure.name.rpartition(".")
        if not group:
            body[name] = _shown(value, found)
        elif value is None and found.is_optional:
            body[group] = None
        else:
            body.setdefault(group, {})[name] = _shown(value, found)
    return body


def _shown(value: Any, found: FoundFigure) -> Any:
    if isinstance(value, float):
        return round(value, found.figure.digits)
    return dict(value) if isinstance(value, Mapping) else value


def answer_type(kind: type) -> Any:
    """The type of what `answer_of` makes of reports of a kind; groups have types of their own."""
    fields: Json = {}
    groups: dict[str, Json] = {}
    for found in _named(kind):
        group, _, name = found.figure.name.rpartition(".")
        (groups.setdefault(group, {}) if group else fields)[name] = found.type
        if group:
            fields[group] = found.is_optional
    for group, members in groups.items():
        made = _TYPED_DICT(_title(group), members)
        fields[group] = made | None if fields[group] else made
    return _TYPED_DICT(kind.__name__, fields)


def _named(kind: type) -> Iterator[FoundFigure]:
    return (found for found in figures_of(kind) if found.figure.name)


def _title(group: str) -> str:
    return group.title().replace("_", "")
