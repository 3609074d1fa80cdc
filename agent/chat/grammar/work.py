"""How much work a request's grammar may be before llguidance sees it; its compiler has own bounds.

Units are characters written, members of schemas gone through, or what takes as long: about half a
microsecond each.
"""

MAX_WORK = 1_000_000
"""Units for one request."""

MAX_SCHEMAS = 512 * 1024
"""Characters of a request's schemas: a grammar with all that belongs to it may be no longer."""


class TooMuchWorkError(Exception):
    """A request's schemas are more work than they may be."""


class Work:
    """What is left for one request."""

    def __init__(self, units: int = MAX_WORK) -> None:
        self._left = units

    def spend(self, units: int) -> None:
        """Call this before the work is done. Raises `TooMuchWorkError`."""
        self._left -= units
        if self._left < 0:
            raise TooMuchWorkError("with these schemas it is too much work")
