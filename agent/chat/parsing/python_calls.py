"""Parses calls written as Python: `[get_weather(city="Oslo", days=3), now()]`.

Each argument is held until it is complete, since only then can it be converted to JSON.
"""

import re

from .literals import as_json, as_text
from .reader import MAX_NAME, Parse, Reader

MAX_VALUE = 65_536
"""Maximum characters of one argument; a longer argument ends the call."""

_NAME = re.compile(r"[\w.-]*")
_STRUCTURE = re.compile(r"[\"'()\[\]{},]")
_IN_STRING = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}


def python_calls(reader: Reader) -> Parse[bool]:
    """Parse calls, with or without brackets around them. Returns `False` if no call was read."""
    return (yield from reader.several(lambda: _call(reader)))


def _call(reader: Reader) -> Parse[bool]:
    name = yield from reader.run(_NAME, MAX_NAME)
    if not name or not (yield from reader.literal(("(",))):
        return False
    reader.begin_call(name)
    yield from _arguments(reader)
    reader.end_call()
    return True


def _arguments(reader: Reader) -> Parse[None]:
    """Parse arguments up to the closing parenthesis, or up to the first invalid one."""
    before = "{"
    while True:
        yield from reader.space()
        if (yield from reader.literal((")",))):
            reader.give_arguments("{}" if before == "{" else "}")
            return
        key = yield from reader.run(_NAME, MAX_NAME)
        yield from reader.space()
        if not key or not (yield from reader.literal(("=",))):
            return
        yield from reader.space()
        value = yield from _value(reader)
        if value is None:
            return
        reader.give_arguments(f"{before}{as_text(key)}: {as_json(value)}")
        before = ", "
        yield from reader.space()
        yield from reader.literal((",",))


def _value(reader: Reader) -> Parse[str | None]:
    """Parse an expression up to the next comma or parenthesis; `None` if it is incomplete."""
    begin, depth = reader.num_held, 0
    while reader.num_held - begin < MAX_VALUE:
        mark = reader.scan(_STRUCTURE, begin + MAX_VALUE)
        if not mark:
            if not (yield from reader.peek()):
                return None
        elif mark in _IN_STRING:
            if not (yield from _rest_of_string(reader, mark, begin + MAX_VALUE)):
                return None
        elif depth == 0 and mark in ",)":
            reader.back(reader.num_held - 1)
            return reader.held_from(begin)
        else:
            depth += (mark in "([{") - (mark in ")]}")
    return None


def _rest_of_string(reader: Reader, quote: str, most_held: int) -> Parse[bool]:
    while reader.num_held < most_held:
        mark = reader.scan(_IN_STRING[quote], most_held)
        if mark == quote:
            return True
        if not (yield from reader.peek()):
            return False
        if mark:
            reader.skip()
    return False
