"""Messages as WebSocket frames: a large one goes in pieces, with others between them.

A message of up to `PIECE_BYTES` is one text frame. A longer one is cut into binary frames: a
header (the transfer's number, and whether the piece is the last one), then a part of the message's
UTF-8 text. So a heartbeat, or another request's message, never waits for more than one piece.

Order is kept within a request: a message waits for the large ones before it that are about the
same request, and overtakes the others. A message about several requests (a step's output) is halved
where it is too long, or where some of them have to wait: few frames, however many requests. What a
receiver has to hold is bounded: `MAX_TRANSFERS` messages, each of `MAX_MESSAGE_BYTES` at most.
"""

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, Protocol, TypeVar

PIECE_BYTES = 16 * 1024
"""Longest message that goes whole, and the longest part of one in a piece. At 10 KB/s it takes
less than two seconds, so heartbeats get through on slow lines."""

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Longest message either side accepts; a request's body is limited well below it."""

MAX_FRAME_BYTES = 1024 * 1024
"""Longest frame either side accepts, with room for peers that cut larger pieces."""

MAX_TRANSFERS = 4
"""Messages that may be on their way in pieces at once, in each direction of one socket."""

_HEADER = struct.Struct(">IB")
_MORE, _LAST, _ABANDONED = range(3)
_NUMBERS = 2**32

M = TypeVar("M")
Topic = str
"""The request that a message is about."""


class Codec(Protocol[M]):
    """How a queue treats the messages of one direction."""

    def encode(self, message: M, /) -> bytes:
        """The message as UTF-8 text."""

    def topics(self, message: M, /) -> Sequence[Topic]:
        """The requests that the message is about; none for the connection's own messages."""

    def halves(self, message: M, /) -> tuple[M, M]:
        """A message about several requests as two, each about half of them."""

    def merged(self, message: M, follower: M, /) -> M | None:
        """Two messages about the same request in one, or `None`."""

    def cuts_short(self, message: M, /) -> bool:
        """Whether the message makes an earlier large one about the same request unnecessary."""

    def in_place_of(self, message: M, /) -> M | None:
        """What is sent for both, once `message` has cut the large one short."""

    def unsendable(self, message: M, reason: str, /) -> M | None:
        """Sent in place of a message that cannot be encoded or is too large."""


@dataclass(slots=True, eq=False)
class _Transfer(Generic[M]):
    """A large message on its way; or waiting for its turn, which is when `text` is empty."""

    message: M
    topic: Topic | None
    text: memoryview = field(default_factory=lambda: memoryview(b""))
    number: int = 0
    sent: int = 0
    followers: deque[M] = field(default_factory=deque)
    """Later messages about the same request."""


class FrameQueue(Generic[M]):
    """The sender's side: messages in, frames out.

    Small messages take turns with pieces: after a piece go all that were waiting by then. Large
    ones take turns piece by piece.
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
        """How many messages have not left whole."""
        num_large = len(self._open) + len(self._later)
        return len(self._messages) + num_large + self._num_followers

    @property
    def num_bytes(self) -> int:
        """The bytes of large messages that are on their way and have not left."""
        return sum(len(transfer.text) - transfer.sent for transfer in self._open)

    def put(self, message: M) -> None:
        """Send `message`, after those before it that are about the same request."""
        self._messages.append(message)

    def clear(self) -> None:
        """Forget what has not been sent."""
        self._messages.clear()
        self._open.clear()
        self._later.clear()
        self._by_topic.clear()
        self._num_followers = self._num_before_piece = 0

    def next(self) -> tuple[bytes, bool] | None:
        """The next frame, and whether it is text; `None` when everything has left."""
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
        """The frame of a message, unless it has to wait or to go in pieces.

        As long as nothing large is on its way, a small message only has to be encoded.
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
        """A large message about one of `topics` is on its way: what is about that one waits."""
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
        """A message that cannot be sent ends its own request and no other."""
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
        """No more of it is sent; the next large message may begin."""
        self._num_followers -= len(transfer.followers)
        if transfer.topic is not None:
            del self._by_topic[transfer.topic]
        if self._later and len(self._open) < MAX_TRANSFERS:
            self._begin(self._later.popleft())


class BadPiece(ValueError):
    """A binary frame that is no piece, or one piece too many."""


class Assembler:
    """The receiver's side: pieces in, messages out."""

    def __init__(self) -> None:
        self._texts: dict[int, bytearray] = {}

    @property
    def num_bytes(self) -> int:
        """What is held of messages whose last piece has not come."""
        return sum(map(len, self._texts.values()))

    def take(self, frame: bytes) -> bytes | None:
        """The message that `frame` completes, if it does. Raises `BadPiece`."""
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
