"""The call notations that the records of families can use."""

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
"""Parses the text after a call's opening marker.

Returns `False` if the text is no call. No call has begun then.
"""


def plain_json(reader: Reader, _tools: Tools) -> Parse[bool]:
    """Parse JSON with a name and arguments."""
    return json_calls(reader, bool)


def json_of_known(reader: Reader, tools: Tools) -> Parse[bool]:
    """Parse JSON with a name and arguments, if the name is one of the request's tools."""
    return json_calls(reader, tools.is_known)


def keyed(reader: Reader, _tools: Tools) -> Parse[bool]:
    """Parse JSON whose key is the function's name."""
    return keyed_calls(reader)


def python(reader: Reader, _tools: Tools) -> Parse[bool]:
    """Parse calls in Python's notation."""
    return python_calls(reader)


def gemma(reader: Reader, _tools: Tools) -> Parse[bool]:
    """Parse a call in Gemma 4's notation."""
    return gemma_call(reader)


def named(header: str) -> Notation:
    """Return a notation: a header that matches `header` (see `named_call`), then JSON."""
    pattern = re.compile(header)
    return lambda reader, _tools: named_call(reader, pattern)


def known(reader: Reader, tools: Tools) -> Parse[bool]:
    """Parse the name of one of the request's tools, then JSON."""
    return known_call(reader, tools.is_known)


def tagged(tags: Tags) -> Notation:
    """Return a notation: one tag for the function, and tags for its arguments."""
    return lambda reader, tools: tagged_call(reader, tags, tools)
