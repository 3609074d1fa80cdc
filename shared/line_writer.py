"""Writes lines on a thread of its own, so that logging never waits for a reader.

A single line is written at once. Lines that come within the next `GATHERING` seconds are written
together. Waking the thread for each line took a tenth of a busy balancer's time.

Waiting lines are bounded. Lines beyond the limit are dropped and counted, and a line reports the
count as soon as there is room again.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO

MAX_WAITING = 4 * 1024 * 1024
"""Maximum bytes of waiting lines."""

GATHERING = 0.1

MOST_AT_ONCE = 64 * 1024
"""Bytes that are written in one piece, as many as a pipe takes; a single line may have more."""

FLUSH_TIMEOUT = 2.0
"""Seconds without progress after which `flush` gives up, because the reader has stopped."""


class LineWriter:
    """Writes lines on a thread. All methods may be called from any thread.

    `write` takes the bytes of whole lines and may block. `notice` returns the text that reports
    dropped lines.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        notice: Callable[[int], str],
        *,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self.num_dropped = 0
        self._write = write
        self._notice = notice
        self._max_waiting = max_waiting
        lock = threading.RLock()
        self._has_lines = threading.Condition(lock)
        """Wakes the writing thread."""
        self._changed = threading.Condition(lock)
        """Wakes the threads that wait in `flush`."""
        self._lines: deque[bytes] = deque()
        self._num_bytes = 0
        """Bytes of the lines not yet written, including the lines being written."""
        self._num_written = 0
        self._num_unreported = 0
        self._is_gathering = False
        self._num_flushing = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        """Queue `line`, or drop it if there is no room. Never blocks."""
        data = _encoded(line)
        with self._changed:
            if self._is_closed or self._num_bytes + len(data) > self._max_waiting:
                self.num_dropped += 1
                self._num_unreported += 1
                return
            self._tell_of_dropped()
            self._append(data)

    def flush(self, timeout: float = FLUSH_TIMEOUT) -> bool:
        """Wait until all lines are written.

        Returns false after `timeout` seconds without progress.
        """
        with self._changed:
            self._num_flushing += 1
            self._has_lines.notify()
            try:
                while self._num_bytes:
                    if not self._is_written_within(timeout):
                        return False
            finally:
                self._num_flushing -= 1
        return True

    def close(self) -> None:
        """Write the waiting lines; later lines are dropped."""
        self.flush()
        with self._changed:
            self._is_closed = True
            self._has_lines.notify()

    def _is_written_within(self, timeout: float) -> bool:
        """Return whether any line is written within `timeout` seconds."""
        seen = self._num_written
        return self._changed.wait_for(lambda: self._num_written != seen, timeout)

    def _append(self, data: bytes) -> None:
        self._lines.append(data)
        self._num_bytes += len(data)
        if not self._is_gathering:
            self._has_lines.notify()

    def _tell_of_dropped(self) -> None:
        if self._num_unreported:
            self._append(_encoded(self._notice(self._num_unreported)))
            self._num_unreported = 0

    def _run(self) -> None:
        while lines := self._next():
            data = b"".join(lines)
            try:
                self._write(data)
            except (OSError, ValueError):  # the reader is gone for good: there is nobody to tell
                self._written(data, num_lost=len(lines))
            else:
                self._written(data, num_lost=0)

    def _next(self) -> list[bytes]:
        """Wait for lines, and return the lines to write together; no lines if the writer is
        closed.
        """
        with self._has_lines:
            if not self._lines:
                self._tell_of_dropped()
            self._has_lines.wait_for(lambda: self._lines or self._is_closed)
            return self._taken()

    def _taken(self) -> list[bytes]:
        taken: list[bytes] = []
        num_bytes = 0
        while self._lines and (not taken or num_bytes + len(self._lines[0]) <= MOST_AT_ONCE):
            taken.append(self._lines.popleft())
            num_bytes += len(taken[-1])
        return taken

    def _written(self, data: bytes, num_lost: int) -> None:
        """Note that `data` is written, then wait for more lines, unless a thread flushes."""
        with self._changed:
            self.num_dropped += num_lost
            self._num_bytes -= len(data)
            self._num_written += 1
            self._changed.notify_all()
            self._is_gathering = True
            self._has_lines.wait_for(self._is_hurried, GATHERING)
            self._is_gathering = False

    def _is_hurried(self) -> bool:
        return self._num_flushing > 0 or self._is_closed


def writes_to(stream: TextIO) -> Callable[[bytes], None]:
    """Return a function that writes bytes to the file below `stream`, if it has a file.

    The function bypasses the stream's own buffer. A thread that is stuck in the buffer would hold
    the buffer's lock, for which Python waits at exit.
    """
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # it is in memory

        def write(data: bytes) -> None:
            stream.write(data.decode())

        return write
    return lambda data: _write_all(number, data)


def _write_all(number: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(number, rest) :]
        except BlockingIOError:  # somebody who shares the file made it non-blocking
            select.select([], [number], [])


def _encoded(line: str) -> bytes:
    return (line + "\n").encode(errors="backslashreplace")
