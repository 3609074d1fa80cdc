"""Splits an answer into content, reasoning and tool calls as it streams.

The boundaries of the pieces change only the sizes of the segments, and no text is lost: text that
looks like a marker but is none is content.
"""

from ....shared.inference import TokenKind
from ..calls.reader import Parse, Reader
from ..calls.segments import Segment
from ..calls.tools import Tools
from ..families.family import Family
from .harmony import channels
from .marker_parser import MarkerParser


class Segmenter:
    """The answer of one request to a model of `family`."""

    def __init__(self, family: Family, *, is_thinking: bool, tools: Tools | None) -> None:
        """`is_thinking`: the prompt ends within reasoning. Without `tools` there are no calls."""
        self._reader = Reader()
        self._parse: Parse[None] = (
            channels(self._reader, has_calls=tools is not None)
            if family.has_channels
            else MarkerParser(self._reader, family, tools).read(is_thinking=is_thinking)
        )
        self._go_on()

    @property
    def kind(self) -> TokenKind:
        """The kind of text being read, as far as known."""
        return self._reader.kind

    def push(self, text: str) -> list[Segment]:
        """The segments that `text` completes."""
        self._reader.feed(text)
        return self._go_on()

    def flush(self) -> list[Segment]:
        """The segments held back; the answer is over."""
        self._reader.is_over = True
        return self._go_on()

    def _go_on(self) -> list[Segment]:
        next(self._parse, None)  # it comes to its end with the text
        return self._reader.fetch()
