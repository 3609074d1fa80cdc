"""Messages as WebSocket frames; a large message is sent in pieces, with others in between.

A message of up to `PIECE_BYTES` is one text frame. A longer message is cut into binary frames.
Each has a header (the transfer's number, and whether the piece is the last one), then a part of
the message's UTF-8 text. So a heartbeat, or another request's message, never waits for more than
one piece.

Order is kept within a request. A message waits for earlier large messages about the same request,
and overtakes large messages about other requests. A message about several requests (a step's
output) is halved if it is too long, or if some of the requests have to wait. This keeps the number
of frames low, however many requests there are. A receiver holds at most `MAX_TRANSFERS` messages
of `MAX_MESSAGE_BYTES` each.
"""

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, Protocol, TypeVar

PIECE_BYTES = 16 * 1024
"""Maximum bytes of a message that is sent whole, and of a piece of a larger one.

At 10 KB/s a piece takes less than two seconds, so heartbeats get through on slow lines.
"""

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Maximum bytes of a message; request bodies have a much lower limit."""

MAX_FRAME_BYTES = 1024 * 1024
"""Maximum bytes of a frame; peers may cut larger pieces than `PIECE_BYTES`."""

MAX_TRANSFERS = 4
"""Maximum messages that are sent in pieces at once, in each direction of a socket."""

_HEADER = struct.Struct(">IB")
_MORE, _LAST, _ABANDONED = range(3)
_NUMBERS = 2**32

M = TypeVar("M")
Topic = str
"""The id of the request that a message is about."""


class Codec(Protocol[M]):
    """Encodes, splits and merges the messages of one direction for a queue."""

    def encode(self, message: M, /) -> bytes:
        """Return the message as UTF-8 text."""

    def topics(self, message: M, /) -> Sequence[Topic]:
        """Return the requests that the message is about; empty for messages about the
        connection."""

    def halves(self, message: M, /) -> tuple[M, M]:
        """Split a message about several requests into two, each about half of the requests."""

    def merged(self, message: M, follower: M, /) -> M | None:
        """Merge two messages about the same request into one; `None` if they cannot be merged."""

    def cuts_short(self, message: M, /) -> bool:
        """Return whether the message makes an earlier large one about its request unnecessary."""

    def in_place_of(self, message: M, /) -> M | None:
        """Return the message to send instead of `message` and the large one that it replaces."""

    def unsendable(self, message: M, reason: str, /) -> M | None:
        """Return what to send instead of a message that cannot be encoded or is too large."""


@dataclass(slots=True, eq=False)
class _Transfer(Generic[M]):
    """A large message that is being sent; `text` is empty until its turn comes."""

    message: M
    topic: Topic | None
    text: memoryview = field(default_factory=lambda: memoryview(b""))
    number: int = 0
    sent: int = 0
    followers: deque[M] = field(default_factory=deque)
    """Later messages about the same request."""


class FrameQueue(Generic[M]):
    """The sender's side: messages in, frames out.

    Small messages and pieces alternate: after each piece the queue sends all messages that were
    waiting by then. Large messages alternate piece by piece.
    """

    def __init__(self, codec: Codec[M]) -> None:
        self._codec = codec
        self._messages: deque[M] = deque()
        self._num_before_piece = 0
        self._is_after_piece = True
        self._open: deque[_Transfer[M]] = deque()
        self._later: deque[_Transfer[M]] = deque()
        self._by_topic: dict[Topic, _Transfer[M]] = {}
        self._numbers = count()
        self._num_followers = 0

    def __len__(self) -> int:
        """Return the number of messages that have not been sent completely."""
        num_large = len(self._open) + len(self._later)
        return len(self._messages) + num_large + self._num_followers

    @property
    def num_bytes(self) -> int:
        """The number of bytes of large messages that are being sent and are still unsent."""
        return sum(len(transfer.text) - transfer.sent for transfer in self._open)

    def put(self, message: M) -> None:
        """Send `message` after earlier messages about the same request."""
        self._messages.append(message)

    def clear(self) -> None:
        """Drop all messages that have not been sent."""
        self._messages.clear()
        self._open.clear()
        self._later.clear()
        self._by_topic.clear()
        self._num_followers = self._num_before_piece = 0

    def next(self) -> tuple[bytes, bool] | None:
        """Return the next frame, and whether it is text; `None` if nothing is left to send."""
        while self._messages or self._open:
            if self._is_after_piece:
                self._is_after_piece = False
                self._num_before_piece = len(self._messages)
            if self._num_before_piece:
                self._num_before_piece -= 1
                frame = self._admit(self._messages.popleft())
                if frame is not None:
                    return frame
            else:
                self._is_after_piece = True
                if self._open:
                    return self._next_piece(), False
        return None

    # ---- inside

    def _admit(self, message: M) -> tuple[bytes, bool] | None:
        """Return the frame of a message, or `None` if it must wait or must be cut into pieces.

        While no large message is being sent, a small message only has to be encoded.
        """
        if self._by_topic:
            topics = self._codec.topics(message)
            if any(topic in self._by_topic for topic in topics):
                return self._hold(message, topics)
        try:
            text = self._encoded(message)
        except ValueError as error:
            self._refuse(message, str(error))
            return None
        if len(text) <= PIECE_BYTES:
            return text, True
        topics = self._codec.topics(message)
        if len(topics) > 1:
            self._put_back(self._codec.halves(message))
        else:
            self._begin(_Transfer(message, topics[0] if topics else None), text)
        return None

    def _hold(self, message: M, topics: Sequence[Topic]) -> tuple[bytes, bool] | None:
        """Make a message wait for the large message about one of its `topics`.

        A message about several requests is split first.
        """
        if len(topics) == 1:
            return self._follow(self._by_topic[topics[0]], message)
        self._put_back(self._codec.halves(message))
        return None

    def _encoded(self, message: M) -> bytes:
        text = self._codec.encode(message)
        if len(text) > MAX_MESSAGE_BYTES:
            raise ValueError(f"{len(text)} bytes; {MAX_MESSAGE_BYTES} are allowed")
        return text

    def _refuse(self, message: M, reason: str) -> None:
        """End the request of a message that cannot be sent; other requests are unaffected."""
        topics = self._codec.topics(message)
        if len(topics) > 1:
            self._put_back(self._codec.halves(message))
        elif (instead := self._codec.unsendable(message, reason)) is not None:
            self._put_back([instead])

    def _put_back(self, messages: Sequence[M]) -> None:
        """Put these messages at the head of the queue."""
        self._messages.extendleft(reversed(messages))
        self._num_before_piece += len(messages)

    def _follow(self, transfer: _Transfer[M], message: M) -> tuple[bytes, bool] | None:
        if self._codec.cuts_short(message):
            return self._cut_short(transfer, message)
        followers = transfer.followers
        merged = self._codec.merged(followers[-1], message) if followers else None
        if merged is not None:
            followers[-1] = merged
        else:
            followers.append(message)
            self._num_followers += 1
        return None

    def _begin(self, transfer: _Transfer[M], text: bytes | None = None) -> None:
        if transfer.topic is not None:
            self._by_topic[transfer.topic] = transfer
        if len(self._open) == MAX_TRANSFERS:
            self._later.append(transfer)  # encoded again in its turn, so that few are in memory
            return
        transfer.text = memoryview(self._codec.encode(transfer.message) if text is None else text)
        transfer.number = next(self._numbers) % _NUMBERS
        self._open.append(transfer)

    def _next_piece(self) -> bytes:
        transfer = self._open.popleft()
        part = transfer.text[transfer.sent : transfer.sent + PIECE_BYTES]
        transfer.sent += len(part)
        is_last = transfer.sent == len(transfer.text)
        if is_last:
            self._over(transfer)
            self._put_back(transfer.followers)
        else:
            self._open.append(transfer)
        return _HEADER.pack(transfer.number, _LAST if is_last else _MORE) + part

    def _cut_short(self, transfer: _Transfer[M], message: M) -> tuple[bytes, bool] | None:
        if transfer in self._later:
            self._later.remove(transfer)
        else:
            self._open.remove(transfer)
        self._over(transfer)
        instead = self._codec.in_place_of(message)
        self._put_back([] if instead is None else [instead])
        if not transfer.sent:
            return None
        return _HEADER.pack(transfer.number, _ABANDONED), False

    def _over(self, transfer: _Transfer[M]) -> None:
        """Stop sending the transfer; the next large message may begin."""
        self._num_followers -= len(transfer.followers)
        if transfer.topic is not None:
            del self._by_topic[transfer.topic]
        if self._later and len(self._open) < MAX_TRANSFERS:
            self._begin(self._later.popleft())


class BadPiece(ValueError):
    """A binary frame that is not a piece, or a piece beyond the limits."""


class Assembler:
    """The receiver's side: pieces in, messages out."""

    def __init__(self) -> None:
        self._texts: dict[int, bytearray] = {}

    @property
    def num_bytes(self) -> int:
        """The number of bytes held for messages whose last piece has not arrived."""
        return sum(map(len, self._texts.values()))

    def take(self, frame: bytes) -> bytes | None:
        """Return the message that `frame` completes, or `None`. Raises `BadPiece`."""
        if len(frame) < _HEADER.size:
            raise BadPiece(f"a piece has a header of {_HEADER.size} bytes, this one {len(frame)}")
        number, kind = _HEADER.unpack_from(frame)
        if kind not in (_MORE, _LAST, _ABANDONED):
            raise BadPiece(f"the kind of a piece is 0, 1 or 2, not {kind}")
        text = self._texts.setdefault(number, bytearray())
        if kind == _ABANDONED:
            del self._texts[number]
            return None
        if len(self._texts) > MAX_TRANSFERS:
            raise BadPiece(f"at most {MAX_TRANSFERS} messages may be on their way in pieces")
        text += memoryview(frame)[_HEADER.size :]
        if len(text) > MAX_MESSAGE_BYTES:
            raise BadPiece(f"a message is longer than {MAX_MESSAGE_BYTES} bytes")
        return bytes(self._texts.pop(number)) if kind == _LAST else None
