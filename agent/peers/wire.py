"""A blocking socket with one deadline for all reads and writes, used by one thread.

`close` may be called from other threads: it ends blocking calls.
"""

import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import numpy as np

from ..engine.prompt_store.stored_prompt import State

CHUNK = 2**18
"""Bytes that are written or read at once; the deadline is checked between two chunks."""


class Wire:
    """A socket, which this object closes. Methods raise `OSError`, also after the deadline."""

    def __init__(
        self, own: socket.socket, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._socket = own
        self._clock = clock
        self._deadline = clock() + seconds

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def close(self) -> None:
        """Close the socket, which ends blocked calls."""
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not what TLS makes of it

    def within(self, seconds: float) -> None:
        """Set the deadline to `seconds` from now."""
        self._deadline = self._clock() + seconds

    def upgrade(self, handshake: Callable[[socket.socket], socket.socket]) -> None:
        """Replace the socket by the result of `handshake`."""
        self._hurry()
        self._socket = handshake(self._socket)

    def read(self, size: int, /) -> State:
        """Read exactly `size` bytes. Memory is used as bytes arrive, not as they are announced."""
        data = np.empty(size, np.uint8)
        view = data.data
        start = 0
        while start < size:
            self._hurry()
            count = self._socket.recv_into(view[start : start + CHUNK])
            if not count:
                raise ConnectionResetError("the peer closed the connection")
            start += count
        return view

    def write(self, parts: Iterable[State]) -> None:
        """Write all of `parts` in order."""
        for part in parts:
            view = memoryview(part)
            for start in range(0, len(view), CHUNK):
                self._hurry()
                self._socket.sendall(view[start : start + CHUNK])

    def _hurry(self) -> None:
        left = self._deadline - self._clock()
        if left <= 0:
            raise TimeoutError("it takes too long")
        self._socket.settimeout(left)
