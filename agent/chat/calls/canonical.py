"""Canonical text of JSON values: equal for equal values (1 and 1.0 are equal, 1 and true are not).

The text is a key of hash tables. Python randomizes the hashes of strings per process, but not those
of numbers and tuples, so a client could choose values whose hashes collide.
"""

import json
from collections.abc import Callable, Iterator

_CHARACTERS_PER_UNIT = 64

Spend = Callable[[int], None]
"""Called with units of work before they are done; raises when the budget is spent."""


class TooDeepError(Exception):
    """A value is nested too deep."""


def canonical(value: object, spend: Spend, most_depth: int) -> str:
    """The canonical text of `value`. Raises `TooDeepError`, and what `spend` raises."""
    return "".join(_parts(value, spend, most_depth))


def _parts(value: object, spend: Spend, depth: int) -> Iterator[str]:
    spend(1)
    match value:
        case str():
            yield _quoted(value, spend)
        case bool() | None:
            yield repr(value)
        case int():
            yield _hex(value, spend)
        case float():
            yield f"{int(value):x}" if value.is_integer() else repr(value)
        case list() | dict() if depth == 0:
            raise TooDeepError
        case list():
            yield "["
            for each in value:
                yield from _parts(each, spend, depth - 1)
                yield ","
            yield "]"
        case dict():
            yield "{"
            for key in sorted(value):
                yield _quoted(key, spend)
                yield ":"
                yield from _parts(value[key], spend, depth - 1)
                yield ","
            yield "}"


def _quoted(text: str, spend: Spend) -> str:
    spend(len(text) // _CHARACTERS_PER_UNIT)
    return json.dumps(text)


def _hex(number: int, spend: Spend) -> str:
    spend(number.bit_length() // _CHARACTERS_PER_UNIT)
    return f"{number:x}"  # decimal takes quadratic time, and Python limits its length
