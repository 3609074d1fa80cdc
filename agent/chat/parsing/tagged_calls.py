"""Parses calls written as tags: one for the function, one per argument, with plain-text values.

A value is streamed as a JSON string if the tool's schema says that it is a string, or says nothing.
Otherwise the value is held until it is complete, and parsed as JSON or Python if the result fits
its schema.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from .json_calls import hold, json_value
from .literals import as_text
from .reader import MAX_NAME, NAME, Markers, Parse, Reader
from .tools import Tools

_DIGITS = re.compile(r"\d*")
_KEY = re.compile(r"[^<>\"\n]*")


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of a notation of calls; some may be empty.

    A call is `<name_start>NAME<name_end>`, then for each argument
    `<key_start>KEY<key_end><value_start>VALUE<value_end>`, then `<end>`. With `number_end`, a
    number and `<number_end>` follow `<name_end>`. `typed_key_ends` are alternatives to `<key_end>`,
    each with whether the value is text. With `has_lines`, one new line before and one after a value
    belong to the notation. A value may be in `quotes`.
    """

    name_start: str
    name_end: str
    key_start: str
    key_end: str
    value_start: str
    value_end: str
    end: str
    number_end: str = ""
    typed_key_ends: tuple[tuple[str, bool], ...] = ()
    has_lines: bool = False
    quotes: tuple[str, str] | None = None


@cache
def _value_ends(tags: Tags) -> Markers:
    """Return the markers that end a value; models may forget `value_end`."""
    ends = (tags.value_end, tags.end, tags.key_start)
    lines = ("\n", "") if tags.has_lines else ("",)
    return Markers(line + end for line in lines for end in ends)


def tagged_call(reader: Reader, tags: Tags, tools: Tools) -> Parse[bool]:
    """Parse a call that is written with `tags`. Returns `False` if it is no call."""
    name = yield from _name(reader, tags)
    if not name:
        return False
    mark = reader.num_held
    yield from reader.space()
    tag = yield from reader.literal((tags.key_start, tags.end))
    if tag is None:
        return False
    reader.back(mark)
    reader.begin_call(name)
    before = "{"
    while True:
        yield from reader.space()
        tag = yield from reader.literal((tags.key_start, tags.end))
        if tag != tags.key_start or not (yield from _argument(reader, tags, tools, name, before)):
            break
        before = ", "
    if tag == tags.end or not reader.is_over:
        reader.give_arguments("{}" if before == "{" else "}")
    reader.end_call()
    return True


def _argument(reader: Reader, tags: Tags, tools: Tools, name: str, before: str) -> Parse[bool]:
    """Parse an argument from its name on; `before` precedes it in JSON.

    Returns `False` if there is no argument.
    """
    found = yield from _argument_key(reader, tags)
    if found is None:
        return False
    key, key_end = found
    reader.give_arguments(f"{before}{as_text(key)}: ")
    is_text = dict(tags.typed_key_ends).get(key_end, tools.is_text(name, key))
    ends = yield from _ends(reader, tags)
    if is_text:
        end = yield from _text(reader, ends)
    else:
        end = yield from _other(reader, ends, partial(tools.value, name, key))
    if end in (tags.end, tags.key_start):  # the model forgot `value_end`
        reader.back(reader.num_held - len(end))
    return True


def _name(reader: Reader, tags: Tags) -> Parse[str | None]:
    if tags.name_start and not (yield from reader.literal((tags.name_start,))):
        return None
    name = yield from reader.run(NAME, MAX_NAME)
    if tags.name_end and not (yield from reader.literal((tags.name_end,))):
        return None
    if tags.number_end:
        yield from reader.run(_DIGITS, MAX_NAME)
        if not (yield from reader.literal((tags.number_end,))):
            return None
    return name


def _argument_key(reader: Reader, tags: Tags) -> Parse[tuple[str, str] | None]:
    """Parse the key; return the key and the marker that ended it, or `None`."""
    key = yield from reader.run(_KEY, MAX_NAME)
    typed = [end for end, _ in tags.typed_key_ends]
    key_end = yield from reader.literal((tags.key_end, *typed))
    if key_end is None:
        return None
    if tags.value_start:
        yield from reader.space()
        if not (yield from reader.literal((tags.value_start,))):
            return None
    return key, key_end


def _ends(reader: Reader, tags: Tags) -> Parse[Markers]:
    """Parse the new line or quote before a value; return the markers that may end the value."""
    if tags.has_lines:
        yield from reader.literal(("\n",))
    if tags.quotes and (yield from reader.literal(tags.quotes[:1])):
        return Markers((tags.quotes[1] + tags.value_end,))
    return _value_ends(tags)


def _text(reader: Reader, ends: Markers) -> Parse[str]:
    """Parse a text and its end. Returns the end marker, which stays held, or an empty text."""
    reader.give_arguments('"')
    found = yield from reader.translate(ends, lambda text: as_text(text)[1:-1])
    reader.give_arguments('"' if found else "")
    return (found or "").strip("\n")


def _other(reader: Reader, ends: Markers, as_value: Callable[[str], str]) -> Parse[str]:
    """Parse a value that may be JSON. Returns the value's end, as `_text` does."""
    text, found = yield from _held(reader, ends)
    reader.give_arguments(as_value(text) if found else "")
    return (found or "").strip("\n")


def _held(reader: Reader, ends: Markers) -> Parse[tuple[str, str | None]]:
    """Return a value and its end, both held. Strings in JSON may contain end markers."""
    mark = reader.num_held
    yield from reader.space()
    start = yield from reader.peek()
    if start and start in '"{[' and (yield from json_value(reader, hold)):
        text = reader.held_from(mark)
        yield from reader.space()
        found = yield from reader.literal(ends.literals)
        if found:
            return text, found
    reader.back(mark)
    return (yield from reader.collect(ends))
