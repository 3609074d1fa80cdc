"""Parses calls as Gemma 4 writes them: `call:name{key:<|"|>text<|"|>,other:[1,true]}`."""

import re

from .literals import as_json, as_text
from .reader import MAX_NAME, NAME, Markers, Parse, Reader

MAX_DEPTH = 64
"""Maximum nesting of objects and lists; parsing of deeper arguments stops there."""

QUOTE = '<|"|>'

_QUOTES = Markers((QUOTE,))
_KEY = re.compile(r"[^:{}\[\],]*")
_SCALAR = re.compile(r"[^,\]}<\s]*")
_MAX_SCALAR = 4096


def gemma_call(reader: Reader) -> Parse[bool]:
    """Parse a call in Gemma 4's notation. Returns `False` if it is no call."""
    if not (yield from reader.literal(("call:",))):
        return False
    name = yield from reader.run(NAME, MAX_NAME)
    if not name or (yield from reader.peek()) != "{":
        return False
    reader.begin_call(name)
    yield from _value(reader, MAX_DEPTH)
    reader.end_call()
    return True


def _value(reader: Reader, depth: int) -> Parse[bool]:
    """Parse a value and emit it as JSON. Returns `False` if the value is incomplete or invalid."""
    if depth == 0:
        return False
    start = yield from reader.literal((QUOTE, "{", "["))
    match start:
        case "{":
            reader.give_arguments("{")
            return (yield from _members(reader, "}", depth))
        case "[":
            reader.give_arguments("[")
            return (yield from _members(reader, "]", depth))
        case None:
            scalar = yield from reader.run(_SCALAR, _MAX_SCALAR)
            reader.give_arguments(as_json(scalar) if scalar else "")
            return bool(scalar)
        case _:
            return (yield from _text(reader))


def _text(reader: Reader) -> Parse[bool]:
    reader.give_arguments('"')
    found = yield from reader.translate(_QUOTES, lambda text: as_text(text)[1:-1])
    reader.give_arguments('"' if found else "")
    return found is not None


def _members(reader: Reader, end: str, depth: int) -> Parse[bool]:
    """Parse the members of an object or a list, up to the marker `end`.

    Returns `False` if the members are invalid.
    """
    yield from reader.space()
    mark = yield from reader.literal((end,))
    while mark != end:
        if end == "}" and not (yield from _key(reader)):
            return False
        yield from reader.space()
        if not (yield from _value(reader, depth - 1)):
            return False
        yield from reader.space()
        mark = yield from reader.literal((",", end))
        if mark is None:
            return False
        if mark == ",":
            reader.give_arguments(", ")
            yield from reader.space()
    reader.give_arguments(end)
    return True


def _key(reader: Reader) -> Parse[bool]:
    key = yield from reader.run(_KEY, MAX_NAME)
    if not key or not (yield from reader.literal((":",))):
        return False
    reader.give_arguments(f"{as_text(key.replace(QUOTE, '').strip())}: ")
    return True
