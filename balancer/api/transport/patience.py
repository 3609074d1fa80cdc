"""A transport with a write timeout, for peers that stop reading."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any


class PatientTransport:
    """Wraps `transport`, and aborts it when no bytes leave for `patience` seconds.

    All writes are watched, even after `close`: an ordinary transport waits without limit for its
    last bytes to leave.
    """

    __slots__ = ("_num_left", "_num_written", "_on_cut", "_patience", "_timer", "_transport")

    def __init__(
        self, transport: asyncio.Transport, *, patience: float, on_cut: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._patience = patience
        self._on_cut = on_cut
        self._num_written = 0
        self._num_left = 0
        self._timer: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """As a transport does."""
        self._num_written += len(data)
        self._transport.write(data)
        if self._timer is None:
            self._watch()

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        """As a transport does."""
        self.write(b"".join(pieces))

    def stop_watching(self) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        """Waits for something to leave, if anything waits to."""
        if self._timer is None and (num_waiting := self._transport.get_write_buffer_size()):
            self._num_left = self._num_written - num_waiting
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._patience, self._look)

    def _look(self) -> None:
        self._timer = None
        num_waiting = self._transport.get_write_buffer_size()
        if num_waiting and self._num_written - num_waiting == self._num_left:
            self._on_cut()
            self._transport.abort()
        else:
            self._watch()
