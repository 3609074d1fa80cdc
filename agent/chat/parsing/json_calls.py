"""Parses calls written as JSON: an object with a name and arguments, or a list of such objects.

The name is the member `name` or `tool_name`; the arguments are `arguments`, `args` or `parameters`.
Other members are ignored. A call begins once its name is known and its arguments begin. Until then
at most `MAX_HELD` characters are held back.
"""

import json
import re
from collections.abc import Callable

from .reader import UNLIMITED, Parse, Reader

MAX_HELD = 8192
"""Maximum characters of a possible call without a name; longer text is no call."""

_STRUCTURE = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')
_SCALAR = re.compile(r"[^\s,;\]}]*")
_NAMES = ("name", "tool_name")
_ARGUMENTS = ("arguments", "args", "parameters")

Give = Callable[[], None]


def json_calls(reader: Reader, accepts: Callable[[str], bool]) -> Parse[bool]:
    """Parse one object, or several in a list or in sequence.

    Returns `False` if no call was read.
    """
    return (yield from reader.several(lambda: _call(reader, accepts), (",", ";")))


def keyed_calls(reader: Reader) -> Parse[bool]:
    """Parse a list of objects whose key is the name: `[{"now": {}}]`.

    Returns `False` if no call was read.
    """
    has_begun = False
    yield from reader.literal(("[",))
    while (yield from _keyed_call(reader)):
        has_begun = True
        yield from reader.space()
        yield from reader.literal((",",))
    if has_begun:
        reader.back()
        yield from reader.space()
        yield from reader.literal(("]",))
    return has_begun


def _keyed_call(reader: Reader) -> Parse[bool]:
    yield from reader.space()
    if not (yield from reader.literal(("{",))):
        return False
    name = yield from _key(reader)
    if not name or (yield from reader.peek()) != "{":
        return False
    reader.begin_call(name)
    yield from json_value(reader, reader.give_verbatim)
    yield from reader.space()
    yield from reader.literal(("}",))
    reader.end_call()
    return True


def _call(reader: Reader, accepts: Callable[[str], bool]) -> Parse[bool]:
    """Parse an object as a call.

    Returns `False` if the object is no call; the text read is then still held.
    """
    if not (yield from reader.literal(("{",))):
        return False
    name: str | None = None
    early: str | None = None  # arguments that come before the name
    has_begun = False
    while (key := (yield from _key(reader))) is not None:
        if key in _NAMES and name is None:
            name = yield from _string(reader)
            if name is None or not accepts(name):
                return False
        elif key in _ARGUMENTS and name is not None and not has_begun:
            has_begun = True
            reader.begin_call(name)
            yield from _arguments(reader)
        elif key in _ARGUMENTS and not has_begun:
            early = yield from _captured(reader)
        else:
            yield from json_value(reader)
        yield from reader.space()
        if reader.num_held >= MAX_HELD or not (yield from reader.literal((",",))):
            break
    is_whole = yield from reader.literal(("}",))
    if name is None or not (is_whole or has_begun):
        return False
    if not has_begun:
        reader.begin_call(name)
        reader.give_arguments(early or "{}")
    reader.end_call()
    return True


def json_value(reader: Reader, give: Give | None = None) -> Parse[bool]:
    """Parse a value, calling `give` as text arrives. Returns `False` if the value is incomplete.

    Without `give` the value is held, and parsing stops at `MAX_HELD` characters.
    """
    first = yield from reader.peek()
    if first == '"':
        reader.skip()
        is_whole = yield from _rest_of_string(reader, give)
    elif first and first in "{[":
        is_whole = yield from _nested(reader, give)
    else:
        is_whole = bool((yield from reader.run(_SCALAR, MAX_HELD)))
    if give:
        give()
    return is_whole


def _nested(reader: Reader, give: Give | None) -> Parse[bool]:
    depth = 0
    while reader.num_held < _most_held(give):
        mark = reader.scan(_STRUCTURE, _most_held(give))
        if mark == '"':
            if not (yield from _rest_of_string(reader, give)):
                return False
        elif mark:
            depth += 1 if mark in "{[" else -1
            if depth == 0:
                return True
        elif not (yield from _more(reader, give)):
            return False
    return False


def _rest_of_string(reader: Reader, give: Give | None) -> Parse[bool]:
    while reader.num_held < _most_held(give):
        mark = reader.scan(_IN_STRING, _most_held(give))
        if mark == '"':
            return True
        if mark:
            if not (yield from reader.peek()):
                return False
            reader.skip()
        elif not (yield from _more(reader, give)):
            return False
    return False


def _more(reader: Reader, give: Give | None) -> Parse[bool]:
    if give:
        give()
    return bool((yield from reader.peek()))


def _most_held(give: Give | None) -> int:
    return UNLIMITED if give else MAX_HELD


def _arguments(reader: Reader) -> Parse[None]:
    """Parse arguments: an object, an object written as a string, or `null` for none."""
    first = yield from reader.peek()
    if first and first in "{[":
        yield from json_value(reader, reader.give_verbatim)
        return
    text = yield from _captured(reader, hold)
    reader.give_arguments("{}" if text == "null" else text)


def hold() -> None:
    """Do nothing, so that the value stays held at any length; serves as a `Give`."""


def _captured(reader: Reader, give: Give | None = None) -> Parse[str]:
    """Parse and hold a value; return the text of a string, or the JSON of any other value."""
    begin = reader.num_held
    yield from json_value(reader, give)
    raw = reader.held_from(begin)
    text = _decoded(raw) if raw.startswith('"') else raw
    return raw if text is None else text


def _key(reader: Reader) -> Parse[str | None]:
    yield from reader.space()
    key = yield from _string(reader)
    yield from reader.space()
    if key is None or not (yield from reader.literal((":",))):
        return None
    yield from reader.space()
    return key


def _string(reader: Reader) -> Parse[str | None]:
    begin = reader.num_held
    if (yield from reader.peek()) != '"' or not (yield from json_value(reader)):
        return None
    return _decoded(reader.held_from(begin))


def _decoded(raw: str) -> str | None:
    try:
        text = json.loads(raw, strict=False)
    except ValueError:
        return None
    # JSON can escape a lone surrogate, which is no character.
    return str(text).encode("utf-8", "replace").decode()
