"""The work budget for building a request's grammar; llguidance's compiler has its own limits.

A unit is one character written, one schema member visited, or something equally costly: about half
a microsecond.
"""

MAX_WORK = 1_000_000
"""Units for one request."""

MAX_SCHEMAS = 512 * 1024
"""Maximum characters of a request's schemas together, as JSON."""


class TooMuchWorkError(Exception):
    """A request's schemas exceed the work budget."""


class Work:
    """The remaining budget of one request."""

    def __init__(self, units: int = MAX_WORK) -> None:
        self._left = units

    def spend(self, units: int) -> None:
        """Call this before doing the work. Raises `TooMuchWorkError`."""
        self._left -= units
        if self._left < 0:
            raise TooMuchWorkError("compiling these schemas takes too much work; simplify them")
