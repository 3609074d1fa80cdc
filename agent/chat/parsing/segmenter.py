"""Splits an answer into content, reasoning and tool calls as it streams.

The boundaries of the pieces change only the sizes of the segments, and no text is lost: text that
only resembles a marker is content.
"""

from ....shared.inference import TokenKind
from ..families.family import Calls, Family
from ..families.notations import Notation
from .harmony import channels
from .reader import Markers, Parse, Reader
from .segments import Segment
from .tools import Tools


class Segmenter:
    """Splits the answer of one request to a model of `family`."""

    def __init__(self, family: Family, *, is_thinking: bool, tools: Tools | None) -> None:
        """Start an empty answer. `is_thinking`: the prompt ends within reasoning.

        Without `tools`, calls are not parsed.
        """
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
        """Return the segments that `text` completes."""
        self._reader.feed(text)
        return self._go_on()

    def flush(self) -> list[Segment]:
        """Return the segments held back; the answer is over."""
        self._reader.is_over = True
        return self._go_on()

    def _go_on(self) -> list[Segment]:
        next(self._parse, None)  # it comes to its end with the text
        return self._reader.fetch()


_NO_CALLS = Calls(openings=(), notations=())


class MarkerParser:
    """Parses one answer whose reasoning and calls are delimited by markers.

    - Reasoning begins at once if the prompt ends within reasoning. Otherwise it begins with its
      marker at the answer's start, or right after other reasoning or a call. Anywhere else the
      marker is text: an answer may be about markers.
    - Calls are parsed only if the request has tools. If the text after a call's marker is no call,
      it is content. Once its name is known, a call stays a call, even with malformed arguments.
    - White space around reasoning and calls belongs to the markers. At the start of an answer it
      is content.

    Methods leave no text held, except those that say so.
    """

    def __init__(self, reader: Reader, family: Family, tools: Tools | None) -> None:
        self._reader = reader
        self._tools = tools or Tools(())
        self._calls = family.calls if tools and family.calls else _NO_CALLS
        self._bare = family.bare if tools else ()
        self._markers = family.reasoning
        self._wrappers = (*family.wrappers, *self._calls.wrappers)
        within = (*self._calls.openings, *self._wrappers)
        self._in_content = Markers(within)
        reasoning = family.reasoning
        self._silent = (*self._wrappers, *family.openers)
        self._at_start = (*within, *family.openers, *((reasoning.opening,) if reasoning else ()))
        # No calls here: reasoning may quote their markers, and its end is rarely missing.
        self._in_reasoning = Markers((reasoning.closing,) if reasoning else ())

    def read(self, *, is_thinking: bool) -> Parse[None]:
        """Parse the whole answer."""
        reader = self._reader
        if is_thinking:
            yield from self._reasoning()
        keeps_space = not is_thinking
        while not reader.is_at_end:
            yield from reader.space()
            if not (self._bare and (yield from self._call(self._bare))):
                yield from self._up_to_marked(keeps_space=keeps_space)
            keeps_space = False

    def _up_to_marked(self, *, keeps_space: bool) -> Parse[None]:
        """Parse content up to the next marker, and then the part that the marker begins.

        Leading white space is held.
        """
        reader = self._reader
        found = yield from reader.literal(self._at_start)
        if found is None:
            reader.give("content" if keeps_space else "markup")
            found = yield from reader.until(self._in_content, "content")
        while found is not None and not (yield from self._marked(found)):
            found = yield from reader.until(self._in_content, "content")

    def _marked(self, found: str) -> Parse[bool]:
        """Parse the part that the held marker begins.

        Returns `False` if the marker turns out to be ordinary text.
        """
        if found in self._silent:
            self._reader.give("markup")
            return True
        if self._markers and found == self._markers.opening:
            yield from self._reasoning()
            return True
        if (yield from self._call(self._calls.notations)):
            return True
        self._reader.give("content")
        return False

    def _reasoning(self) -> Parse[None]:
        """Parse reasoning to its end; its opening marker, if any, is held."""
        reader = self._reader
        reader.kind = "reasoning"
        yield from reader.space()
        reader.give("markup")
        yield from reader.until(self._in_reasoning, "reasoning")
        reader.give("markup")
        reader.kind = "content"

    def _call(self, notations: tuple[Notation, ...]) -> Parse[bool]:
        """Parse one or more calls.

        Returns `False` if there is no call; the held text is then unchanged.
        """
        reader = self._reader
        mark = reader.num_held
        for notation in notations:
            yield from reader.space()
            if (yield from notation(reader, self._tools)):
                yield from self._closings()
                return True
            reader.back(mark)
        return False

    def _closings(self) -> Parse[None]:
        reader = self._reader
        while True:
            reader.give("markup")
            yield from reader.space()
            if not (yield from reader.literal(self._calls.closings)):
                break
        reader.back()
