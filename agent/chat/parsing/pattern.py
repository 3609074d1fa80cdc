"""Matches a schema's `pattern`, and estimates the cost to compile and to match it.

Costs are upper estimates in units of half a microsecond. Matching is linear in the text, with as
many steps per character as the pattern has atoms after its repeats are expanded.
"""

import re
from dataclasses import dataclass

from pydantic_core import SchemaError, SchemaValidator, core_schema

_ATOM = re.compile(
    r"(?P<open>\()|(?P<close>\))"
    r"|\{(?P<least>\d{1,9}),?(?P<most>\d{0,9})\}"
    r"|(?P<wide>\\[wWpPbB])|(?P<narrow>\\[dDsS])"
    r"|\\.|\[\^?\]?(?P<members>(?:\\.|[^\]\\])*)\]?|(?P<none>[*+?|^$])|.",
    re.DOTALL,
)
"""Matches one atom. An unclosed class extends to the end, so nothing is scanned twice."""

_WIDE = 1200
"""Units for a class with thousands of Unicode's characters."""
_NARROW = 300
_RANGE = 30
_ESCAPED_WIDE = re.compile(r"\\[wWpPdDsS]")
_UNITS_PER_STEP = 1 / 16
MOST_COST = 2**40
"""Cap on estimates, which nested repeats could otherwise make arbitrarily large."""


@dataclass(frozen=True, slots=True)
class PatternCost:
    """An estimate: `num_atoms` with repeats expanded, and `to_compile` in units."""

    num_atoms: int
    to_compile: int

    def to_match(self, text: str) -> int:
        """Return the units to match `text`."""
        return int(self.num_atoms * len(text) * _UNITS_PER_STEP)


def cost_of(pattern: str) -> PatternCost:
    """Return an upper estimate of the pattern's cost, computed in linear time."""
    sums = [(0, 0)]
    last = (0, 0)
    for found in _ATOM.finditer(pattern):
        if found["open"]:
            sums.append((0, 0))
            last = (0, 0)
            continue
        if found["close"]:
            last = sums.pop() if len(sums) > 1 else (0, 0)
        elif found["least"] is not None:
            times = max(int(found["least"]), int(found["most"] or 0), 1) - 1
            last = (min(last[0] * times, MOST_COST), min(last[1] * times, MOST_COST))
        else:
            last = _cost_of_atom(found)
        sums[-1] = _sum(sums[-1], last)
    total = (0, 0)
    for each in sums:
        total = _sum(total, each)
    return PatternCost(total[0], total[0] + total[1])


def _cost_of_atom(found: re.Match[str]) -> tuple[int, int]:
    """Return the number of atoms, and the units to compile classes."""
    if found["none"]:
        return (1, 0)
    if found["wide"]:
        return (1, _WIDE)
    if found["narrow"]:
        return (1, _NARROW)
    if found["members"] is not None:
        return (1, _RANGE + _WIDE * len(_ESCAPED_WIDE.findall(found["members"])))
    return (1, 0)


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return min(one[0] + other[0], MOST_COST), min(one[1] + other[1], MOST_COST)


class Pattern:
    """A compiled pattern.

    A pattern that the regular expression engine rejects matches everything.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self._validator: SchemaValidator | None = SchemaValidator(
                core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
            )
        except SchemaError:
            self._validator = None

    def matches(self, text: str) -> bool:
        """Return whether `pattern` is found in `text`."""
        return self._validator is None or self._validator.isinstance_python(text)
