"""Figures: the numbers in reports and views, each described by a `Figure` at its type.

The `Figure` of a field gives its place in answers, its metric, its line on the page and its row in
the docs. For a property, the `Figure` is in the type that it returns.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: a counter, which only grows, or a gauge.

    With a `label`, the metric has one series for each of several figures. A figure without a value
    counts as `absent`; if `absent` is `None`, it has no series.
    """

    name: str
    help: str
    label: str | None = None
    is_counter: bool = False
    absent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line on the page: `hint` explains the title.

    `words` is a text with `{path in the answer|format}` for values; the formats are the ones of
    `dashboard/format.js`. Without `words`, a function of the page writes the line. The page leaves
    the line out if the value at `needs` is 0 or null, or the value at `known` is null. The line of
    a device has a plot, which is full at `most`: a value, or a path to one.
    """

    title: str
    hint: str = ""
    words: str = ""
    needs: str = ""
    known: str = ""
    most: float | str | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """The description of a figure: a number that reports and views contain.

    - `name`: the figure's path in API answers, such as `cells.used`. A figure without a name is
      only a metric.
    - `meaning`: the text in the docs.
    - `metric`: the metric that exports the figure. If the metric has a label, `label` is the
      label's value for this figure.
    - `digits`: the number of decimals in API answers.
    - `line`: the dashboard's line for the figure, which may show other figures too.
    - `summed`: the field's name in messages between balancers. If it is set, API answers contain
      the sum over all balancers.
    """

    name: str = ""
    meaning: str = ""
    metric: Family | None = None
    label: str = ""
    digits: int = 2
    line: Line | None = None
    summed: str = ""


class Clock:
    """Marks a figure that grows with time, such as an age.

    Readers compute it, so its change is not sent.
    """


@dataclass(frozen=True, slots=True)
class FoundFigure:
    """A figure, its type, and the `path` of fields to it.

    `is_optional`: a field on the path may be `None`.
    """

    path: tuple[str, ...]
    figure: Figure
    type: Any
    is_optional: bool

    def shown(self, value: Any) -> Any:
        """Return a value of the figure in the form of answers."""
        if isinstance(value, float):
            return int(value) if self.is_whole else round(value, self.figure.digits)
        return dict(value) if isinstance(value, Mapping) else value

    @property
    def is_whole(self) -> bool:
        """Whether the figure is a whole number."""
        return get_args(self.type)[0] is int

    def of(self, report: object) -> Any:
        """Return the figure's value in a report; `None` if the report lacks a part of the path."""
        for name in self.path:
            report = None if report is None else getattr(report, name)
        return report


@cache
def figures_of(kind: type) -> tuple[FoundFigure, ...]:
    """Return the figures of a dataclass and of its nested dataclasses, in field order.

    Properties come first.
    """
    return tuple(_found(kind, (), is_optional=False))


def _found(kind: type, path: tuple[str, ...], *, is_optional: bool) -> Iterator[FoundFigure]:
    hints = {
        name: get_type_hints(member.fget, include_extras=True)["return"]
        for name, member in vars(kind).items()
        if isinstance(member, property)
    }
    for name, hint in (hints | get_type_hints(kind, include_extras=True)).items():
        marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Figure)]
        for figure in marks:
            yield FoundFigure((*path, name), figure, hint, is_optional)
        kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        parts = (each for each in kinds if isinstance(each, type) and is_dataclass(each))
        for part in () if marks else parts:
            yield from _found(part, (*path, name), is_optional=is_optional or NoneType in kinds)
