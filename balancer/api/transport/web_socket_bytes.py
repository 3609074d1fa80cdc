"""Counts the bytes that arrive on WebSockets, frame by frame, before aiohttp reads them.

aiohttp passes on whole messages and limits each message. This module also counts the parts of
incomplete messages, so that all of them together can be limited (`bodies`). It limits how many
frames are read at once. It also limits frames that cost more than they carry: control frames,
empty fragments, and messages of a few bytes. Honest peers send few of these.
"""

from dataclasses import dataclass, field

_LENGTHS = {126: 2, 127: 8}
"""The size in bytes of the longer length that follows these values in a frame's header."""

_IS_LAST = 0x80
_IS_MASKED = 0x80
_FIRST_CONTROL = 0x8
_TEXT, _BINARY = 0x1, 0x2

FRAMES_AT_ONCE = 64
"""Maximum frames that are read in one turn of the event loop."""

TINY_MESSAGE = 16
"""A message of fewer bytes is tiny. The shortest honest message is a heartbeat of 20 bytes."""

TINY_FRAGMENT = 128
"""A fragment of fewer bytes is tiny. Honest peers split only long messages."""


class FrameFault(Exception):
    """An error after which the connection is closed; its text is the reason in the close frame."""


class TooManyFrames(FrameFault):
    """A connection used up its allowance of frames."""


class UnmaskedFrame(FrameFault):
    """A client sent a frame without a mask, against RFC 6455, section 5.1."""


@dataclass(slots=True)
class Allowance:
    """An allowance of `most` units at once, which grows by `per_second`. Times never go back."""

    most: float
    per_second: float
    _left: float = field(init=False)
    _at: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._left = self.most

    def use(self, num: int, now: float) -> bool:
        """Use `num` units. Returns whether they are within the allowance."""
        since = 0.0 if self._at is None else now - self._at
        self._at = now
        self._left = min(self.most, self._left + since * self.per_second) - num
        return self._left >= 0


def control_frames() -> Allowance:
    """Return the allowance of pings and pongs; an honest peer sends one in many seconds."""
    return Allowance(most=100, per_second=10)


def tiny_frames() -> Allowance:
    """Return the allowance of frames with hardly any content."""
    return Allowance(most=4000, per_second=1000)


class FrameBytes:
    """Reads uncompressed frames, which may arrive in any pieces."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._num_left = 0
        """The number of bytes of the present frame's payload that are still missing."""
        self._is_message = False
        self._num_control = self._num_tiny = 0
        self._control, self._tiny = control_frames(), tiny_frames()

    def take(self, data: bytes, start: int, end: int, now: float) -> tuple[int, int]:
        """Read `data` between `start` and `end`, which follows the earlier bytes.

        Returns the end of the part that may be read at once, and the number of message bytes in
        that part. Raises `TooManyFrames` and `UnmaskedFrame`.
        """
        position, count, num_frames = start, 0, 0
        while position < end and num_frames < FRAMES_AT_ONCE:
            if self._num_left:
                num_here = min(self._num_left, end - position)
                self._num_left -= num_here
                position += num_here
                count += num_here if self._is_message else 0
            else:
                stop = min(end, position + _header_size(self._header) - len(self._header))
                self._header += data[position:stop]
                position = stop
                num_frames += self._begin()
        self._check(now)
        return position, count

    def _begin(self) -> bool:
        """Begin the payload, if the header is complete."""
        header = self._header
        if len(header) < _header_size(header):
            return False
        if not header[1] & _IS_MASKED:
            raise UnmaskedFrame("a frame of a client must be masked")
        length = header[1] & 0x7F
        if num_bytes := _LENGTHS.get(length):
            length = int.from_bytes(header[2 : 2 + num_bytes], "big")
        self._num_left = length
        kind = header[0] & 0x0F
        self._is_message = kind < _FIRST_CONTROL
        if not self._is_message:
            self._num_control += 1
        elif length < TINY_FRAGMENT:
            is_whole = kind in (_TEXT, _BINARY) and header[0] & _IS_LAST
            self._num_tiny += length < (TINY_MESSAGE if is_whole else TINY_FRAGMENT)
        header.clear()
        return True

    def _check(self, now: float) -> None:
        num_control, num_tiny = self._num_control, self._num_tiny
        self._num_control = self._num_tiny = 0
        if num_control and not self._control.use(num_control, now):
            raise TooManyFrames("too many pings and pongs")
        if num_tiny and not self._tiny.use(num_tiny, now):
            raise TooManyFrames("too many tiny frames")


def _header_size(header: bytearray) -> int:
    """Return the size of a frame's header, as far as its first bytes show it."""
    if len(header) < 2:
        return 2
    return 2 + _LENGTHS.get(header[1] & 0x7F, 0) + (4 if header[1] & _IS_MASKED else 0)
