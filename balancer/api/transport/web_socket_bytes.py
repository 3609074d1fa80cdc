"""Bytes of WebSocket messages, counted as they arrive.

aiohttp hands out whole messages and bounds each one. This counts the parts of those that are not
complete yet, so that all of them together can be bounded (`bodies`).
"""

from collections.abc import Callable
from typing import Protocol

_LENGTHS = {126: 2, 127: 8}
"""Bytes of the longer length that follows one of these in a frame's header."""

_IS_MASKED = 0x80
_FIRST_CONTROL = 0x8


class FrameBytes:
    """Reads frames without compression, which may arrive in any pieces."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._num_left = 0
        """Bytes of the present frame's payload that are still to come."""
        self._is_message = False

    def add(self, data: bytes) -> int:
        """How many bytes of messages there are in `data`, which follows what came before."""
        position = count = 0
        while position < len(data):
            if self._num_left:
                num_here = min(self._num_left, len(data) - position)
                self._num_left -= num_here
                position += num_here
                count += num_here if self._is_message else 0
            else:
                end = position + _header_size(self._header) - len(self._header)
                self._header += data[position:end]
                position = min(end, len(data))
                self._begin()
        return count

    def _begin(self) -> None:
        """The payload begins, if the header is complete."""
        header = self._header
        if len(header) < _header_size(header):
            return
        length = header[1] & 0x7F
        if num_bytes := _LENGTHS.get(length):
            length = int.from_bytes(header[2 : 2 + num_bytes], "big")
        self._num_left = length
        self._is_message = header[0] & 0x0F < _FIRST_CONTROL
        header.clear()


def _header_size(header: bytearray) -> int:
    """As far as its beginning says."""
    if len(header) < 2:
        return 2
    return 2 + _LENGTHS.get(header[1] & 0x7F, 0) + (4 if header[1] & _IS_MASKED else 0)


class Reader(Protocol):
    """What an aiohttp connection feeds with what arrives on a WebSocket."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]: ...

    def feed_eof(self) -> None: ...


class CountedReader:
    """Feeds `reader` as long as `count` is content with the further bytes of messages.

    After that, what arrives is thrown away.
    """

    def __init__(self, reader: Reader, count: Callable[[int], bool]) -> None:
        self._reader = reader
        self._count = count
        self._frames = FrameBytes()
        self._is_cut = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """As aiohttp's reader does."""
        self._is_cut = self._is_cut or not self._count(self._frames.add(data))
        return (False, b"") if self._is_cut else self._reader.feed_data(data)

    def feed_eof(self) -> None:
        """As aiohttp's reader does."""
        self._reader.feed_eof()
