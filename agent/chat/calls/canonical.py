"""JSON values as text that is equal where the values are: 1 and 1.0 are one number, 1 and true not.

The text goes into hash tables. Only the hashes of text differ from process to process; numbers and
tuples whose hashes collide could be chosen by a client.
"""

import json
from collections.abc import Callable, Iterator

_CHARACTERS_PER_UNIT = 64

Spend = Callable[[int], None]
"""Is told of units of work before they are done, and raises when there have been enough."""


class TooDeepError(Exception):
    """A value has more values within values than are looked at."""


def canonical(value: object, spend: Spend, most_depth: int) -> str:
    """Raises `TooDeepError`, and what `spend` raises."""
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
    return f"{number:x}"  # in decimal it would take quadratic time, and have a limit
