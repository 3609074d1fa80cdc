"""Reads the parameters of URLs. Errors name the wrong parameter."""

from collections.abc import Collection, Mapping

from ...shared.errors import InvalidRequest
from ...shared.quantities import parse_duration

FIRST_DATE = 10**9
"""Numbers from here on are seconds since 1970. Smaller numbers are seconds before now."""


def check_names(query: Mapping[str, str], names: Collection[str]) -> None:
    """Raise `InvalidRequest` for a parameter that is not in `names`.

    The error names the parameter.
    """
    for name in query:
        if name not in names:
            raise InvalidRequest(f"`{name[:100]}` is not one of {', '.join(names)}", field=name)


def is_number(text: str) -> bool:
    """Return whether `text` is a number without a sign that every JSON reader keeps exactly."""
    return text.isascii() and text.isdigit() and len(text) < 17


def number(name: str, text: str, least: int, most: int) -> int:
    """Return a number within bounds. Raises `InvalidRequest`."""
    if is_number(text) and least <= int(text) <= most:
        return int(text)
    raise InvalidRequest(
        f"`{name}` must be a number from {least} to {most}, not {text[:100]!r}", field=name
    )


def duration(name: str, text: str, also: str = "") -> float:
    """Return a duration in seconds. Raises `InvalidRequest`.

    `also` is a text for the error that names other allowed values.
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidRequest(f"`{name}` {error}{also}", field=name) from None


def since(text: str, now: float) -> float:
    """Return a time from a time or a duration before now. Raises `InvalidRequest`."""
    if is_number(text) and FIRST_DATE <= int(text) < 10**11:
        return float(text)
    return now - duration("since", text, ", or a time in seconds since 1970")
