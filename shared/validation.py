"""From pydantic's findings to one sentence that names the field and says what would be right."""

from collections.abc import Iterable
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from .errors import InvalidRequest

T = TypeVar("T")

MAX_ECHO = 60
"""Longest part of a bad value that an error repeats, in characters."""


def parse_json(adapter: TypeAdapter[T], body: str | bytes) -> T:
    """`body` as the adapter's type. Raises `InvalidRequest` that names the field."""
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        raise invalid(error) from error


def invalid(error: ValidationError) -> InvalidRequest:
    """The first finding of `error` as an `InvalidRequest`."""
    finding = error.errors(include_url=False, include_context=False)[0]
    field = field_name(finding["loc"])
    return InvalidRequest(_sentence(finding["type"], field, finding["msg"], finding["input"]), field=field or None)


def field_name(location: Iterable[int | str]) -> str:
    """A pydantic location as a path people write: `messages[0].content`."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier():
            path += f".{part}" if path else part
    return path


def _sentence(kind: str, field: str, message: str, value: object) -> str:
    if kind == "json_invalid":
        return f"the body is not valid JSON: {message.removeprefix('Invalid JSON: ')}"
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"unknown field `{field}`"
    if kind in ("missing", "missing_argument"):
        return f"`{field}` is missing"
    reason = message.removeprefix("Value error, ")
    if not field:
        return reason
    return f"`{field}`: {reason[0].lower()}{reason[1:]}, not {_echo(value)}"


def _echo(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_ECHO else text[: MAX_ECHO - 1] + "…"
