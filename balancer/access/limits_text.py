"""Limits as operators write them in a setting: `requests-per-minute=60,max-concurrent=4`."""

from dataclasses import fields

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from ...shared.validation import requirement
from .identity import NO_LIMITS, CallerLimits

NAMES = tuple(field.name.replace("_", "-") for field in fields(CallerLimits))
_LIMITS = TypeAdapter(CallerLimits)


def parse_limits(value: object) -> CallerLimits:
    """The limits of a text; several models stand between `+`. Raises `ValueError`."""
    if isinstance(value, CallerLimits):
        return value
    given: dict[str, object] = {}
    for part in str(value).split(","):
        name, equals, text = (each.strip() for each in part.partition("="))
        name = name.replace("_", "-")
        if not part.strip():
            continue
        if name not in NAMES or not equals:
            raise ValueError(f"must be NAME=VALUE between commas, of {', '.join(NAMES)}")
        if name in given:
            raise ValueError(f"must have {name} once")
        given[name] = _value(name, text)
    return _checked({name.replace("-", "_"): each for name, each in given.items()})


def _value(name: str, text: str) -> object:
    if name == "models":
        return text.split("+")
    if name in ("priority", "default-priority"):
        return text
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        raise ValueError(f"must have a whole number for {name}, not {text[:60]!r}")
    return int(text)


def _checked(given: dict[str, object]) -> CallerLimits:
    if not given:
        return NO_LIMITS
    try:
        return _LIMITS.validate_json(to_json(given))
    except ValidationError as error:
        finding = error.errors(include_url=False)[0]
        name = str(finding["loc"][0]).replace("_", "-")
        raise ValueError(f"{name} {requirement(finding)}") from None
