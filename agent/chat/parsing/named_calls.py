"""Parses calls written as a header with the function's name, then the arguments as JSON."""

import re
from collections.abc import Callable

from .json_calls import json_value
from .reader import NAME, Parse, Reader

MAX_HEADER = 256
"""Maximum characters of a header; a longer header is no call."""

_UP_TO_BRACE = re.compile(r"[^{]*")


def named_call(reader: Reader, header: re.Pattern[str]) -> Parse[bool]:
    """Parse a call whose header matches `header`. Returns `False` if it is no call.

    The pattern has a group `name`, and a group `id` if the model writes one.
    """
    text = yield from reader.run(_UP_TO_BRACE, MAX_HEADER)
    found = header.fullmatch(text.strip())
    if not found or not (yield from reader.peek()):
        return False
    reader.begin_call(found["name"], found.groupdict().get("id"))
    yield from json_value(reader, reader.give_verbatim)
    reader.end_call()
    return True


def known_call(reader: Reader, accepts: Callable[[str], bool]) -> Parse[bool]:
    """Parse a call whose header is only a name.

    Returns `False`, as early as possible, if it is no call.
    """
    name = yield from reader.run(NAME, MAX_HEADER)
    if not accepts(name):
        return False
    yield from reader.space()
    if (yield from reader.peek()) != "{":
        return False
    reader.begin_call(name)
    yield from json_value(reader, reader.give_verbatim)
    reader.end_call()
    return True
