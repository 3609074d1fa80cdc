"""Answers made of figures, and the types of such answers (`shared/reports/figures.py`)."""

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any, ClassVar, NotRequired, get_origin, get_type_hints

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema
from typing_extensions import TypedDict

from ...shared.reports.figures import FoundFigure, figures_of

Json = dict[str, Any]
_TYPED_DICT: Any = TypedDict


def answer_of(report: object, kind: type | None = None) -> Json:
    """Return the figures of a report that have names in answers. A missing part is null.

    `kind` is the class that declares the figures, by default the class of `report`. If `report` is
    `None`, all figures are null.
    """
    body: Json = {}
    for found in _named(kind or type(report)):
        value = found.of(report)
        group, _, name = found.figure.name.rpartition(".")
        if not group:
            body[name] = found.shown(value)
        elif value is None and found.is_optional:
            body[group] = None
        else:
            body.setdefault(group, {})[name] = found.shown(value)
    return body


class Answer(Json):
    """An answer with the figures of the class `OF`, and with the annotated fields of subclasses.

    If `KNOWN` is not `None`, all figures except those in `KNOWN` may be null. `OPTIONAL` names
    fields that an answer may lack.
    """

    OF: ClassVar[type]
    KNOWN: ClassVar[Collection[str] | None] = None
    OPTIONAL: ClassVar[Collection[str]] = ()

    @classmethod
    def fields(cls) -> Json:
        """Return the types of all fields by name. Annotated types replace the types of figures."""
        hints = get_type_hints(cls, include_extras=True)
        return cls.figures() | {
            name: NotRequired[hint] if name in cls.OPTIONAL else hint
            for name, hint in hints.items()
            if get_origin(hint) is not ClassVar
        }

    @classmethod
    def figures(cls) -> Json:
        """Return the types of the figures by name. Groups of figures have types of their own."""
        fields: Json = {}
        groups: dict[str, Json] = {}
        for found in _named(cls.OF):
            group, _, name = found.figure.name.rpartition(".")
            kind = found.type
            if cls.KNOWN is not None and found.figure.name not in cls.KNOWN:
                kind |= None
            (groups.setdefault(group, {}) if group else fields)[name] = kind
            if group:
                fields[group] = found.is_optional
        for group, members in groups.items():
            made = _TYPED_DICT(_title(group), members)
            fields[group] = made | None if fields[group] else made
        return fields

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(_typed_dict(cls))


@cache
def _typed_dict(answer: type[Answer]) -> Any:
    """Return the same type for every use of an answer, so that its description appears once."""
    made = _TYPED_DICT(answer.__name__, answer.fields())
    made.__doc__ = answer.__doc__
    return made


def _named(kind: type) -> Iterator[FoundFigure]:
    return (found for found in figures_of(kind) if found.figure.name)


def _title(group: str) -> str:
    return group.title().replace("_", "")
