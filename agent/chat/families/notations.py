"""The notations of calls, made ready for the table of families."""

import re
from collections.abc import Callable

from ..parsing.gemma_calls import gemma_call
from ..parsing.json_calls import json_calls, keyed_calls
from ..parsing.named_calls import known_call, named_call
from ..parsing.python_calls import python_calls
from ..parsing.reader import Parse, Reader
from ..parsing.tagged_calls import Tags, tagged_call
from ..parsing.tools import Tools

Notation = Callable[[Reader, Tools], Parse[bool]]
"""Reads what follows a call's opening marker. False, with no call begun, if it is none."""


def plain_json(reader: Reader, _tools: Tools) -> Parse[bool]:
    """JSON with a name and arguments."""
    return json_calls(reader, bool)


def json_of_known(reader: Reader, tools: Tools) -> Parse[bool]:
    """JSON with a name and arguments, of a tool that the client named."""
    return json_calls(reader, tools.is_known)


def keyed(reader: Reader, _tools: Tools) -> Parse[bool]:
    """JSON with the name as key."""
    return keyed_calls(reader)


def python(reader: Reader, _tools: Tools) -> Parse[bool]:
    """Calls in Python's notation."""
    return python_calls(reader)


def gemma(reader: Reader, _tools: Tools) -> Parse[bool]:
    """A call in Gemma 4's notation."""
    return gemma_call(reader)


def named(header: str) -> Notation:
    """A header, as `named_call` takes it, and JSON."""
    pattern = re.compile(header)
    return lambda reader, _tools: named_call(reader, pattern)


def known(reader: Reader, tools: Tools) -> Parse[bool]:
    """A name of a tool that the client named, and JSON."""
    return known_call(reader, tools.is_known)


def tagged(tags: Tags) -> Notation:
    """A tag for the function and tags for its arguments."""
    return lambda reader, tools: tagged_call(reader, tags, tools)
