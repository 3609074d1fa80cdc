"""Parser input for streamed text: parsers are generators that yield when they need more text.

Text that was read is *held* until the parser emits it as a segment, or goes back to read it again
in another way. The cost of a piece grows with the piece and the held text, not with the whole
text.

Invariants: every character is in exactly one segment, in order; the boundaries of the pieces
change only the number of segments.
"""

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeVar

from ....shared.inference import TokenKind
from .segments import CallBegan, CallEnded, Segment, SegmentKind, TextSegment

T = TypeVar("T")
Parse = Generator[None, None, T]

UNLIMITED = 2**40
"""A number greater than the characters of any answer."""

NAME = re.compile(r"[\w.:-]*")
MAX_NAME = 256
"""The characters of a function's name, and their maximum number."""

_SPACE = re.compile(r"\s*")


class Markers:
    """Literals to search for. No literal may be a prefix of another."""

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = tuple(dict.fromkeys(literals))
        self._pattern = re.compile("|".join(map(re.escape, self.literals)) or r"(?!)")
        self._longest = max(map(len, self.literals), default=0)
        self._beginnings = {each[:end] for each in self.literals for end in range(1, len(each))}

    def find(self, text: str, start: int) -> re.Match[str] | None:
        """Return the first match in `text` from `start` on."""
        return self._pattern.search(text, start)

    def num_begun(self, text: str, start: int) -> int:
        """Return the number of characters at the end of `text[start:]` that may begin a literal."""
        for length in range(min(self._longest - 1, len(text) - start), 0, -1):
            if text[-length:] in self._beginnings:
                return length
        return 0


class Reader:
    """The text, the position in it, and the segments not yet fetched."""

    def __init__(self) -> None:
        self._text = ""
        self._start = 0
        self._at = 0
        self._segments: list[Segment] = []
        self.kind: TokenKind = "content"
        """The kind of the text being read, even before any of it is emitted."""
        self.is_over = False
        """True if no more text will come."""

    def feed(self, text: str) -> None:
        """Append text."""
        self._text = self._text[self._start :] + text
        self._at -= self._start
        self._start = 0

    def fetch(self) -> list[Segment]:
        """Return the segments emitted since the last call."""
        segments, self._segments = self._segments, []
        return segments

    @property
    def num_held(self) -> int:
        """The number of characters read but not emitted."""
        return self._at - self._start

    @property
    def is_at_end(self) -> bool:
        """Return whether all text was read and no more will come."""
        return self.is_over and self._at == len(self._text)

    # ---- giving out

    def take(self) -> str:
        """Remove and return the held text; the caller puts it into a segment."""
        raw = self._text[self._start : self._at]
        self._start = self._at
        return raw

    def give(self, kind: SegmentKind) -> None:
        """Emit the held text as `kind`."""
        if raw := self.take():
            text = "" if kind == "markup" else raw
            self._segments.append(TextSegment(kind, text, raw, self.kind == "reasoning"))

    def give_arguments(self, text: str) -> None:
        """Emit the held text as a call's arguments, with `text` as their JSON."""
        if text or self.num_held:
            self._segments.append(TextSegment("tool_call", text, self.take()))

    def give_verbatim(self) -> None:
        """Emit the held text as a call's arguments, unchanged."""
        self.give("tool_call")

    def begin_call(self, name: str, id: str | None = None) -> None:
        """Emit the held text as the beginning of a call."""
        self.kind = "tool_call"
        self._segments.append(CallBegan(name, id, self.take()))

    def end_call(self) -> None:
        """Emit the held text as the end of a call."""
        self.kind = "content"
        self._segments.append(CallEnded(self.take()))

    def held_from(self, begin: int) -> str:
        """Return the held text without its first `begin` characters."""
        return self._text[self._start + begin : self._at]

    def back(self, num_held: int = 0) -> None:
        """Go back until `num_held` characters are held; later characters are read again."""
        self._at = self._start + num_held

    # ---- reading; each waits until the text is long enough to decide

    def peek(self) -> Parse[str]:
        """Return the next character without reading it; empty at the end."""
        while self._at == len(self._text) and not self.is_over:
            yield
        return self._text[self._at : self._at + 1]

    def skip(self) -> None:
        """Read the character that `peek` returned."""
        self._at += 1

    def space(self) -> Parse[None]:
        """Read white space."""
        yield from self.run(_SPACE)

    def literal(self, choices: Sequence[str]) -> Parse[str | None]:
        """Read the longest of `choices` that comes next; return `None` if no choice comes next."""
        while True:
            fitting = [each for each in choices if self._text.startswith(each, self._at)]
            rest = self._text[self._at :] if len(self._text) - self._at < 64 else None
            may_fit = rest is not None and any(
                len(each) > len(rest) and each.startswith(rest) for each in choices
            )
            if self.is_over or not may_fit:
                break
            yield
        if not fitting:
            return None
        found = max(fitting, key=len)
        self._at += len(found)
        return found

    def run(self, pattern: re.Pattern[str], limit: int = UNLIMITED) -> Parse[str]:
        """Read up to `limit` characters that match `pattern`, a repeated character class."""
        begin = self.num_held
        while True:
            end = self._start + begin + limit
            found = pattern.match(self._text, self._at, end)
            self._at = found.end() if found else self._at
            if self._at < len(self._text) or self._at == end or self.is_over:
                return self.held_from(begin)
            yield

    def several(
        self, one: Callable[[], Parse[bool]], separators: Sequence[str] = (",",)
    ) -> Parse[bool]:
        """Repeat `one` until it fails. Square brackets may enclose all repetitions.

        Returns `False` if `one` never succeeded. The text of a failed last attempt is read again.
        """
        is_list = yield from self.literal(("[",))
        has_begun = False
        while True:
            yield from self.space()
            if not (yield from one()):
                break
            has_begun = True
            yield from self.space()
            yield from self.literal(separators)
        if not has_begun:
            return False
        self.back()
        if is_list:
            yield from self.space()
            yield from self.literal(("]",))
        return True

    def scan(self, pattern: re.Pattern[str], most_held: int = UNLIMITED) -> str:
        """Read past the next match in the available text and return the match.

        Without a match, read all available text. Reading stops when `most_held` characters are
        held.
        """
        end = min(len(self._text), self._start + most_held)
        found = pattern.search(self._text, self._at, end)
        self._at = found.end() if found else end
        return found[0] if found else ""

    def translate(self, markers: Markers, translation: Callable[[str], str]) -> Parse[str | None]:
        """Read past the next marker and return it; emit the text before the marker as arguments.

        `translation` converts the emitted text. Returns `None` at the end of the text.
        """
        while True:
            found = self._to(markers)
            self.give_arguments(translation(self.held_from(0)))
            self._at += len(found or "")
            if found or self.is_over:
                return found
            yield

    def until(self, markers: Markers, kind: TokenKind) -> Parse[str | None]:
        """Read past the next marker and return it; `None` at the end of the text.

        Text before the marker is emitted as `kind` as it arrives. The marker is held, together with
        the white space before it.
        """
        self.kind = kind
        while True:
            found = self._to(markers)
            end = self._at
            if markers.literals and not (found is None and self.is_over):
                self._at = self._start + len(self._text[self._start : end].rstrip())
            self.give(kind)
            self._at = end + len(found or "")
            if found or self.is_over:
                return found
            yield

    def collect(self, markers: Markers) -> Parse[tuple[str, str | None]]:
        """Return the text before the next marker, and the marker; both are held."""
        begin = self.num_held
        while True:
            found = self._to(markers)
            if found or self.is_over:
                text = self.held_from(begin)
                self._at += len(found or "")
                return text, found
            yield

    def _to(self, markers: Markers) -> str | None:
        """Read up to the next marker and return it, or read up to where a marker may begin."""
        found = markers.find(self._text, self._at)
        if found:
            self._at = found.start()
            return found[0]
        num_begun = 0 if self.is_over else markers.num_begun(self._text, self._at)
        self._at = len(self._text) - num_begun
        return None
