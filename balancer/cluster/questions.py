"""Questions to other balancers that are open, and what has come of their answers.

Invariants: at most `MOST_OPEN` are open; of each only those that were asked are heard, each once;
a piece that does not fit to those before it ends what its balancer answers. An answer travels in
pieces that fit into notifications, compressed, as ASCII text: `joined(cut(body)) == body` for
whatever `cut` takes.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .notifications import MOST_PIECES, MOST_TEXT, Answered

MOST_OPEN = 64


MOST_BYTES = 16 * 1024 * 1024
"""Most bytes of an answer before it is compressed; fewer where it compresses badly."""


class TooLong(Exception):
    """An answer takes more pieces than there may be."""


class Unreadable(Exception):
    """These are not the pieces of an answer."""


def cut(body: bytes) -> list[str]:
    """At least one piece, each of at most `MOST_TEXT` characters. Raises `TooLong`."""
    text = b64encode(zlib.compress(body, level=1)).decode()
    if len(body) > MOST_BYTES or len(text) > MOST_PIECES * MOST_TEXT:
        raise TooLong(f"an answer of {len(body)} bytes is too long")
    return [text[start : start + MOST_TEXT] for start in range(0, len(text), MOST_TEXT)]


def joined(pieces: Sequence[str]) -> bytes:
    """The answer that was cut so. Raises `Unreadable`."""
    reader = zlib.decompressobj()
    try:
        body = reader.decompress(b64decode("".join(pieces), validate=True), MOST_BYTES)
    except (zlib.error, ValueError) as error:
        raise Unreadable(str(error)) from error
    if not reader.eof:
        raise Unreadable("it does not end")
    return body


@dataclass(frozen=True, slots=True)
class Reply:
    """What the balancer of this name answers."""

    balancer: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Replies:
    """What came of a question; `missing` are the names of those that did not answer it in time."""

    replies: tuple[Reply, ...] = ()
    missing: tuple[str, ...] = ()


class _Question:
    """`asked`: the name of each run that has not answered yet."""

    def __init__(self, asked: Iterable[tuple[str, str]]) -> None:
        self.asked = dict(asked)
        self.replies: list[Reply] = []
        self._failed: list[str] = []
        self._pieces: dict[str, list[str]] = {}

    def heard(self, answer: Answered) -> None:
        if answer.by not in self.asked:
            return
        pieces = self._pieces.setdefault(answer.by, [])
        if answer.number != len(pieces):
            self._fail(answer.by)
            return
        pieces.append(answer.text)
        if len(pieces) == answer.num:
            self._complete(answer.by, pieces)

    def _complete(self, run: str, pieces: Sequence[str]) -> None:
        try:
            body = joined(pieces)
        except Unreadable:
            self._fail(run)
        else:
            self.replies.append(Reply(self.asked.pop(run), body))

    def _fail(self, run: str) -> None:
        self._failed.append(self.asked.pop(run))

    def so_far(self) -> Replies:
        missing = sorted([*self._failed, *self.asked.values()])
        replies = sorted(self.replies, key=lambda each: each.balancer)
        return Replies(tuple(replies), tuple(missing))


class Questions:
    """The open questions of one run of a balancer."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._open: dict[str, _Question] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def has_room(self) -> bool:
        """Whether one more may be asked."""
        return len(self._open) < MOST_OPEN

    def ask(self, id: str, asked: Iterable[tuple[str, str]]) -> None:
        """Open a question to these, each a run with its name; while there is room only."""
        if not self.has_room:
            raise RuntimeError("too many questions are open")
        self._open[id] = _Question(asked)

    def heard(self, answer: Answered) -> str | None:
        """Take a piece of an answer. The question's id once nothing more is to come."""
        question = self._open.get(answer.id)
        if question is None or answer.to != self._run:
            return None
        question.heard(answer)
        return None if question.asked else answer.id

    def close(self, id: str) -> Replies:
        """What has come of it; what comes later is not heard."""
        return self._open.pop(id).so_far()
