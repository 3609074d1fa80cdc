"""Calls written as tags: one for the function, one for each argument, whose value is plain text.

A value becomes a JSON string as it streams if the tool's schema says it is one, or says nothing;
otherwise it is held until it is whole, and is taken for JSON or Python if it is either.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from ..reader import Markers, Parse, Reader
from .literals import as_json, as_text

IsText = Callable[[str, str], bool]
"""Whether the tool `name` takes a string for its argument `key`."""

_NAME = re.compile(r"[\w.:-]*")
_DIGITS = re.compile(r"\d*")
_KEY = re.compile(r"[^<>\"\n]*")
_MAX_NAME = 256


@dataclass(frozen=True, slots=True)
class Tags:
    """`<name_start>NAME<name_end>`, then for each argument
    `<key_start>KEY<key_end><value_start>VALUE<value_end>`, then `<end>`. Some may be empty.

    With a `number_end` a number and this come after `<name_end>`. Of `typed_key_ends`, which may
    stand for `<key_end>`, each says whether the value is text.
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


@cache
def _value_ends(tags: Tags) -> Markers:
    """A new line right before the end is the notation's, and the end may be forgotten."""
    ends = (tags.value_end, tags.end, tags.key_start)
    return Markers(newline + end for newline in ("\n", "") for end in ends)


def tagged_call(reader: Reader, tags: Tags, is_text: IsText) -> Parse[bool]:
    """False if it is no call."""
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
    has_arguments = False
    while True:
        yield from reader.space()
        tag = yield from reader.literal((tags.key_start, tags.end))
        if tag != tags.key_start:
            break
        found = yield from _argument_key(reader, tags)
        if found is None:
            break
        key, key_end = found
        reader.give_arguments((", " if has_arguments else "{") + f"{as_text(key)}: ")
        has_arguments = True
        kind = dict(tags.typed_key_ends).get(key_end)
        yield from _value(reader, tags, is_text(name, key) if kind is None else kind)
    if tag == tags.end or not reader.is_over:
        reader.give_arguments("}" if has_arguments else "{}")
    reader.end_call()
    return True


def _name(reader: Reader, tags: Tags) -> Parse[str | None]:
    if tags.name_start and not (yield from reader.literal((tags.name_start,))):
        return None
    name = yield from reader.run(_NAME, _MAX_NAME)
    if tags.name_end and not (yield from reader.literal((tags.name_end,))):
        return None
    if tags.number_end:
        yield from reader.run(_DIGITS, _MAX_NAME)
        if not (yield from reader.literal((tags.number_end,))):
            return None
    return name


def _argument_key(reader: Reader, tags: Tags) -> Parse[tuple[str, str] | None]:
    """The key, and which of its ends it has."""
    key = yield from reader.run(_KEY, _MAX_NAME)
    typed = [end for end, _ in tags.typed_key_ends]
    key_end = yield from reader.literal((tags.key_end, *typed))
    if key_end is None:
        return None
    if tags.value_start:
        yield from reader.space()
        if not (yield from reader.literal((tags.value_start,))):
            return None
    yield from reader.literal(("\n",))
    return key, key_end


def _value(reader: Reader, tags: Tags, is_text: bool) -> Parse[None]:
    ends = _value_ends(tags)
    if is_text:
        reader.give_arguments('"')
        found = yield from reader.translate(ends, lambda text: as_text(text)[1:-1])
        rest = '"'
    else:
        text, found = yield from reader.collect(ends)
        rest = as_json(text)
    end = (found or "").removeprefix("\n")
    if end != tags.value_end:  # it was forgotten, and this is the next tag
        reader.back(reader.num_held - len(end))
    reader.give_arguments(rest if found else "")
