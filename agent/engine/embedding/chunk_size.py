"""The largest chunk that fits into a time budget."""

LEAST = 16
"""Tokens of the first chunk, and of any: a smaller one costs nearly as much."""
_NEWEST = 0.3
"""Weight of the newest observation."""


class ChunkSize:
    """`seconds` is the time a chunk may take, `most` its largest size in tokens."""

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self._seconds_per_token: float | None = None

    @property
    def num_tokens(self) -> int:
        """The size of the next chunk, by what chunks have cost so far."""
        if self._seconds_per_token is None:
            return min(LEAST, self._most)
        fitting = self._seconds / max(self._seconds_per_token, 1e-9)
        return min(self._most, max(LEAST, int(fitting)))

    def observe(self, num_tokens: int, seconds: float) -> None:
        """A chunk of `num_tokens` took `seconds`."""
        cost = seconds / num_tokens
        known = self._seconds_per_token
        self._seconds_per_token = cost if known is None else known + _NEWEST * (cost - known)
