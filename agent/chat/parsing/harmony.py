"""Parses answers in OpenAI's harmony format: a sequence of messages with headers.

`<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`

The channel `analysis` is reasoning. A message with a recipient is a call, of `NAME` if the
recipient is `functions.NAME`. Everything else is content, including `commentary` before a call. The
prompt ends with `<|start|>assistant`. Text without a header is content.
"""

import re

from .json_calls import json_value
from .reader import Markers, Parse, Reader

_HEADER_STARTS = ("<|start|>", "<|channel|>", "<|message|>", "to=")
_HEADER_ENDS = Markers(("<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|return|>"))
ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>")
"""Markers that end a message or begin the next one."""
_BODY_ENDS = Markers(ENDS)
_LATER_STARTS = Markers(("<|start|>", "<|channel|>"))
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([\w.:-]+)")


def channels(reader: Reader, *, has_calls: bool) -> Parse[None]:
    """Parse the whole answer. Without `has_calls`, messages to functions are content."""
    while not reader.is_at_end:
        yield from reader.space()
        start = yield from reader.literal(_HEADER_STARTS)
        if start is None:
            reader.give("content")
            start = yield from reader.until(_LATER_STARTS, "content")
        while start is not None:
            start = yield from _message(reader, start, has_calls=has_calls)


def _message(reader: Reader, start: str, *, has_calls: bool) -> Parse[str | None]:
    """Parse a message whose header begins with the held text `start`.

    Returns the marker that begins the next header, or `None`.
    """
    header: str
    end: str | None
    header, end = "", start
    if start != "<|message|>":
        header, end = yield from reader.collect(_HEADER_ENDS)
    if end != "<|message|>":
        reader.give("content")
        return None
    found = yield from _body(reader, start + header, has_calls=has_calls)
    if found not in _HEADER_STARTS:
        reader.give("markup")
        found = None
    reader.kind = "content"
    return found


def _body(reader: Reader, header: str, *, has_calls: bool) -> Parse[str | None]:
    """Parse the message's body. Returns the marker that ended the body; the marker stays held."""
    recipient = _RECIPIENT.search(header)
    if recipient and has_calls:
        reader.begin_call(recipient[1])
        if (yield from reader.peek()) == "{":  # strings in JSON may contain markers
            yield from json_value(reader, reader.give_verbatim)
        found = yield from reader.translate(_BODY_ENDS, str)
        # The end may belong to the next header.
        reader.back()
        reader.end_call()
        yield from reader.literal(_BODY_ENDS.literals)
        return found
    channel = _CHANNEL.search(header)
    is_thought = channel is not None and channel[1] == "analysis"
    reader.kind = "reasoning" if is_thought else "content"
    reader.give("markup")
    return (yield from reader.until(_BODY_ENDS, reader.kind))
