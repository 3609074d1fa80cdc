"""Open questions to other balancers, and their answers so far.

Invariants: at most `MOST_OPEN` questions are open; an answer counts only if its balancer was
asked, and only once. An answer is sent compressed, as ASCII text: `unpacked(packed(body)) == body`
for every `body` that `packed` accepts.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass

from .notifications import MOST_TEXT, Answered

MOST_OPEN = 64


MOST_BYTES = 16 * 1024 * 1024
"""Maximum bytes of an answer before compression; fewer if it compresses badly."""


class TooLong(Exception):
    """An answer is too long."""


class Unreadable(Exception):
    """A text that is no answer."""


def packed(body: bytes) -> str:
    """Return an answer as at most `MOST_TEXT` characters. Raises `TooLong`."""
    text = b64encode(zlib.compress(body, level=1)).decode()
    if len(body) > MOST_BYTES or len(text) > MOST_TEXT:
        raise TooLong(f"an answer of {len(body)} bytes is too long")
    return text


def unpacked(text: str) -> bytes:
    """Return the answer that `packed` wrote into `text`. Raises `Unreadable`."""
    reader = zlib.decompressobj()
    try:
        body = reader.decompress(b64decode(text, validate=True), MOST_BYTES)
    except (zlib.error, ValueError) as error:
        raise Unreadable(str(error)) from error
    if not reader.eof:
        raise Unreadable("it does not end")
    return body


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of the balancer with this name."""

    balancer: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Replies:
    """The answers to a question; `missing` names the balancers that did not answer in time."""

    replies: tuple[Reply, ...] = ()
    missing: tuple[str, ...] = ()


class _Question:
    """An open question. `asked` has the runs that have not answered yet, with their names."""

    def __init__(self, asked: Iterable[tuple[str, str]]) -> None:
        self.asked = dict(asked)
        self.replies: list[Reply] = []
        self._failed: list[str] = []

    def heard(self, answer: Answered) -> None:
        if (name := self.asked.pop(answer.by, None)) is None:
            return
        try:
            self.replies.append(Reply(name, unpacked(answer.text)))
        except Unreadable:
            self._failed.append(name)

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
        """Whether another question may be asked."""
        return len(self._open) < MOST_OPEN

    def ask(self, id: str, asked: Iterable[tuple[str, str]]) -> None:
        """Open a question to these runs, given with their names. Call it only if `has_room`."""
        if not self.has_room:
            raise RuntimeError("too many questions are open")
        self._open[id] = _Question(asked)

    def heard(self, answer: Answered) -> str | None:
        """Take an answer. Returns the question's id once all answers have come."""
        question = self._open.get(answer.id)
        if question is None or answer.to != self._run:
            return None
        question.heard(answer)
        return None if question.asked else answer.id

    def close(self, id: str) -> Replies:
        """Return the answers so far. Later answers are ignored."""
        return self._open.pop(id).so_far()
