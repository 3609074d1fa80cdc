"""A transport with a write timeout, for peers that stop reading."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

Data = bytes | bytearray | memoryview


class PatientTransport:
    """Wraps `transport`, and aborts it when no bytes leave for `patience` seconds.

    All writes are watched, even after `close`, because an ordinary transport waits without limit
    for its last bytes to leave. All other calls go to the transport. Python looks attributes up
    slowly in a class with `__getattr__`, so the attributes that each request needs are stored.
    """

    __slots__ = (
        *("_transport", "_watch"),
        *("get_extra_info", "is_closing", "resume_reading", "write"),
    )

    def __init__(
        self, transport: asyncio.Transport, *, patience: float, on_cut: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._watch = _WriteWatch(transport, patience, on_cut)
        self.get_extra_info = transport.get_extra_info
        self.is_closing = transport.is_closing
        self.resume_reading = transport.resume_reading
        self.write: Callable[[Data], None] = self._watch.write
        """See `asyncio.Transport`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def writelines(self, pieces: Iterable[Data]) -> None:
        """Send several pieces of data."""
        self.write(b"".join(pieces))

    def stop_watching(self) -> None:
        """Stop watching, because the connection was lost."""
        self._watch.stop()


class _WriteWatch:
    """Watches each write, and checks whether bytes leave."""

    __slots__ = ("_num_left", "_num_written", "_on_cut", "_patience", "_timer", "_transport")

    def __init__(
        self, transport: asyncio.Transport, patience: float, on_cut: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._patience = patience
        self._on_cut = on_cut
        self._num_written = 0
        self._num_left = 0
        self._timer: asyncio.TimerHandle | None = None

    def write(self, data: Data) -> None:
        self._num_written += len(data)
        self._transport.write(data)
        if self._timer is None:
            self._begin()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        """Begin to wait for bytes to leave, if any are waiting."""
        if num_waiting := self._transport.get_write_buffer_size():
            self._num_left = self._num_written - num_waiting
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._patience, self._check)

    def _check(self) -> None:
        self._timer = None
        num_waiting = self._transport.get_write_buffer_size()
        if num_waiting and self._num_written - num_waiting == self._num_left:
            self._on_cut()
            self._transport.abort()
        else:
            self._begin()
