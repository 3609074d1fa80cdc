"""Splits a stream of bytes into server-sent events, and returns the data of each.

Only the field `data` counts, as in OpenAI's API; comments and other fields are skipped.
"""

from .failures import UpstreamFault

MAX_LINE = 4 * 2**20
"""Maximum bytes of a line; a chunk of one token is far smaller, even with log-probabilities."""

MAX_TOTAL = 2**29
"""Maximum bytes of one answer."""


class EventLines:
    """Takes bytes as they arrive. Raises `UpstreamFault` if a limit is exceeded."""

    def __init__(self, *, max_line: int = MAX_LINE, max_total: int = MAX_TOTAL) -> None:
        self._max_line = max_line
        self._max_total = max_total
        self._rest = b""
        self._num_bytes = 0

    def push(self, data: bytes) -> list[bytes]:
        """Return the data of the events that are now complete."""
        self._num_bytes += len(data)
        if self._num_bytes > self._max_total:
            raise UpstreamFault(f"its answer is longer than {self._max_total} bytes")
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self._max_line or any(len(line) > self._max_line for line in lines):
            raise UpstreamFault(f"a line of its answer is longer than {self._max_line} bytes")
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]
