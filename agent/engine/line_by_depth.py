"""A line for each octave of depth.

The further back a prompt's attention reaches the more each of its tokens costs, in proportions that
depend on the model and on llama.cpp's ways. So they are not reckoned: each octave has its own line.
"""

from .line import Line

_SHALLOW = 8
"""Depths of less than 2 to the power of this have one line."""


class LineByDepth:
    """Learns from `observe`."""

    def __init__(self) -> None:
        self._lines: dict[int, Line] = {}

    def observe(self, depth: int, count: int, seconds: float) -> None:
        """`count`, from position `depth` on, took `seconds`."""
        self._lines.setdefault(_octave(depth), Line()).observe(count, seconds)

    def at(self, depth: int) -> Line:
        """The line there; where nothing was seen yet the next shallower one, or the nearest."""
        octave = _octave(depth)
        if not self._lines:
            return Line()
        return self._lines[max((o for o in self._lines if o <= octave), default=min(self._lines))]


def _octave(depth: int) -> int:
    return (depth >> _SHALLOW).bit_length()
