"""Makes charts of the history for the whole fleet, for each agent or for each model.

The functions are pure and may run on another thread, because steps never change.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from .series import Levels, Selection, Step, beside, join
from .sums import Histogram, Sums, percentile

By = Literal["agent", "model"]

STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)
"""The possible step lengths in seconds, if a reader chooses none."""

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The line of one agent, one model, or the fleet (`name` is `None`): one value for each time.

    The empty name stands for all names that a step does not list. `ended` counts requests by the
    way they ended.
    """

    name: str | None
    tokens_per_second: list[float]
    prompt_tokens_per_second: list[float]
    cached_tokens_per_second: list[float]
    ended: dict[str, list[int]]
    first_token_ms: dict[str, list[float | None]]
    between_tokens_ms: dict[str, list[float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart with one or more lines.

    `times` are the beginnings of steps of `step` seconds, without steps that have no records.
    `levels` describe the fleet.
    """

    step: int
    times: list[int]
    levels: list[Levels]
    lines: list[Line]


def step_for(seconds: int, most: int) -> int:
    """Return the shortest step that divides `seconds` into at most `most` steps."""
    return next((step for step in STEPS if seconds <= step * most), STEPS[-1])


def chart(
    selections: Sequence[Selection], step: int, by: By | None, name: str | None = None
) -> Chart:
    """Return a chart in steps of `step` seconds, or longer if the history has only longer steps.

    `selections` are the histories of balancers at the same time. If `name` is given, the chart has
    at most the line of this agent or model.
    """
    width = max((each.width for each in selections), default=1)
    step = ceil(step / width) * width
    joined = _beside([_joined(each.steps, step) for each in selections])
    names = _names(joined, by)
    return Chart(
        step=step,
        times=[each.at for each in joined],
        levels=[each.levels for each in joined],
        lines=[_line(each, joined, by) for each in names if name in (None, each)],
    )


def _joined(steps: Iterable[Step], step: int) -> list[Step]:
    parts: dict[int, list[Step]] = {}
    for each in steps:
        parts.setdefault(each.at - each.at % step, []).append(each)
    return [join(each, at) for at, each in parts.items()]


def _beside(sources: Sequence[Iterable[Step]]) -> list[Step]:
    """Return the counts of several balancers together, in order of time."""
    together: dict[int, list[Step]] = {}
    for steps in sources:
        for each in steps:
            together.setdefault(each.at, []).append(each)
    return [beside(together[at]) for at in sorted(together)]


def _names(steps: Iterable[Step], by: By | None) -> Sequence[str | None]:
    if by is None:
        return [None]
    return sorted({name for step in steps for name in _named(step, by)})


def _named(step: Step, by: By) -> Mapping[str, Sums]:
    return step.agents if by == "agent" else step.models


_NOTHING = Sums(ended={})


def _line(name: str | None, steps: Sequence[Step], by: By | None) -> Line:
    if name is None or by is None:
        sums = [step.fleet for step in steps]
    else:
        sums = [_named(step, by).get(name, _NOTHING) for step in steps]
    seconds = [step.seconds for step in steps]
    codes = sorted({code for each in sums for code in each.ended})
    return Line(
        name=name,
        tokens_per_second=_rates([each.completion_tokens for each in sums], seconds),
        prompt_tokens_per_second=_rates([each.prompt_tokens for each in sums], seconds),
        cached_tokens_per_second=_rates([each.cached_tokens for each in sums], seconds),
        ended={code: [each.ended.get(code, 0) for each in sums] for code in codes},
        first_token_ms=_percentiles([each.first_token for each in sums]),
        between_tokens_ms=_percentiles([each.between_tokens for each in sums]),
    )


def _rates(counts: Sequence[int], seconds: Sequence[int]) -> list[float]:
    return [round(count / length, 2) for count, length in zip(counts, seconds, strict=True)]


def _percentiles(histograms: Sequence[Histogram]) -> dict[str, list[float | None]]:
    return {
        name: [_milliseconds(percentile(each, share)) for each in histograms]
        for name, share in SHARES.items()
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)
