"""Estimates the memory of a request while it waits or runs.

A request stays in memory until it ends, because it may move to another agent. Its values may be
much larger than its body: a body of 7.9 MB can become 64 MB of lists and numbers. So the values
are measured in the size that CPython needs for them.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from sys import getsizeof
from typing import cast

from pydantic_core import to_json

from ...shared.errors import Overloaded, RequestError, RequestTooLarge
from .caller import Account
from .shares import Shares

OVERHEAD = 8 * 1024
"""The bytes of a request without content: its records, its stream and its task."""

OF_OBJECT = 64
"""The bytes of an object, without the pointers to its fields."""

OF_NUMBER = 32
"""The bytes of a number that CPython does not share."""

OF_POINTER = 8

MAX_LOOKS = 2**14
"""The maximum number of lists and objects that are measured, which takes about 10 ms.

A larger request counts as `UNSEEN` additional bytes. Long conversations with calls and pictures
have some thousands of lists and objects.
"""

RETRY_AFTER = 1.0
"""The seconds after which a refused caller may try again."""

UNSEEN = 128 * 2**20
"""The maximum bytes of the values of a body, reached by a long text with emojis."""


def footprint(request: object) -> int:
    """Return the estimated bytes of a request or query."""
    size, num_left = OVERHEAD, MAX_LOOKS
    waiting: list[object] = [request]
    while waiting:
        value = waiting.pop()
        num_left -= 1
        kind = type(value)
        if kind is list or kind is tuple:
            values = cast("list[object]", value)
            size += getsizeof(values)
        elif kind is dict:
            entries = cast("dict[str, object]", value)
            size += getsizeof(entries) + sum(map(getsizeof, entries))
            values = list(entries.values())
        elif (read := _reader(cast("Hashable", kind))) is not None:
            of_fields = read(value)
            size += OF_OBJECT + OF_POINTER * len(of_fields)
            values = [each for each in of_fields if each is not None]
        else:
            size += getsizeof(value)
            continue
        if _NUMBERS.issuperset(map(type, values)):
            size += OF_NUMBER * len(values)
            continue
        num_left -= len(values) // 8
        if num_left < 0:
            return size + UNSEEN
        size += sum([getsizeof(each) for each in values if type(each) in _SIMPLE])
        waiting += [each for each in values if type(each) not in _SIMPLE]
    return size


MOST_A_BYTE = 32
"""The maximum bytes of memory for one byte of JSON. `{}` takes 24 times its length."""


def footprints(values: Iterable[object]) -> int:
    """Return the estimated bytes of `values`, without the overhead of a request."""
    return sum(map(_of_value, values))


def _of_value(value: object) -> int:
    size = footprint(value) - OVERHEAD
    return size if size < UNSEEN else min(size, MOST_A_BYTE * len(to_json(value)))


_NUMBERS: set[type] = {int, float, bool, type(None)}
_SIMPLE: set[type] = _NUMBERS | {str, bytes}


@cache
def _reader(kind: Hashable) -> Callable[[object], tuple[object, ...]] | None:
    """Return a function that reads all fields of a dataclass; `None` for another type."""
    if not is_dataclass(kind):
        return None
    names = [field.name for field in fields(kind)]
    if len(names) > 1:  # otherwise it would return no tuple
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def memory_refusal(
    shares: Shares[Account], account: Account, num_bytes: int
) -> RequestError | None:
    """Return the error if a request of `num_bytes` may not wait or run.

    Returns `None` if the account may.
    """
    if num_bytes > shares.share:
        return RequestTooLarge(
            f"the request needs about {num_bytes} bytes of memory; one request may need at "
            f"most {shares.share}"
        )
    if shares.refuses(account, num_bytes):
        return Overloaded(
            "the waiting and running requests of all callers, or of this caller, use too "
            "much memory (--request-memory); try again when a request has ended",
            retry_after=RETRY_AFTER,
        )
    return None
