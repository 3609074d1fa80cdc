"""Reads the parameters of charts (times, steps, grouping) and of ended requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf, isfinite
from typing import Self, get_args

from ....shared.errors import InvalidRequest
from ...history.chart import By, step_for
from ...store.records import EndedRequest, EndingFilter, EndingPlace, place_of
from ..parameters import check_names, duration, number, since

DAY = 86_400
DEFAULT_SPAN = 900
MOST_TIMES = {None: 3600, "agent": 720, "model": 720}
"""Maximum times of a chart, by its grouping."""

GOOD_TIMES = 300
"""Maximum times of a chart if the query gives no step."""

HISTORY_NAMES = ("since", "step", "by", "name")
ENDED_NAMES = ("state", "model", "agent", "caller", "code", "before", "limit")
DEFAULT_LIMIT = 200
MAX_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """A query for steps of `step` seconds, from the time `since` in seconds since 1970.

    `by` groups the steps; `name` selects one group.
    """

    since: int
    step: int
    by: By | None
    name: str | None = None

    @classmethod
    def of(cls, query: Mapping[str, str], now: float) -> Self:
        """Return the query in a URL's parameters.

        Raises `InvalidRequest`, which names the parameter.
        """
        check_names(query, HISTORY_NAMES)
        by, name = _by(query.get("by")), query.get("name")
        if name is not None and by is None:
            raise InvalidRequest("`name` needs `by`: agent or model", field="name")
        since = _since(query.get("since", str(DEFAULT_SPAN)), now)
        return cls(since, _step(query.get("step"), ceil(now - since), by), by, name)


def ended_filter(query: Mapping[str, str]) -> EndingFilter:
    """Return the filter in a URL's parameters.

    Raises `InvalidRequest`, which names the parameter.
    """
    check_names(query, ENDED_NAMES)
    return EndingFilter(
        model=query.get("model"),
        agent=query.get("agent"),
        caller=query.get("caller"),
        code=query.get("code"),
        before=_place(query["before"]) if "before" in query else None,
        limit=number("limit", query.get("limit", str(DEFAULT_LIMIT)), 1, MAX_LIMIT),
    )


def cursor_after(last: EndedRequest) -> str:
    """Return the parameter `before` for the page after the request `last`."""
    place = place_of(last)
    return f"{place.ended_at!r},{place.id}"


def _place(cursor: str) -> EndingPlace:
    ended_at, _, id = cursor.partition(",")
    try:
        place = EndingPlace(float(ended_at), id)
    except ValueError:
        place = EndingPlace(inf, "")
    if not id or not isfinite(place.ended_at):
        raise InvalidRequest(
            f"`before` must be the `next` of an earlier answer, not {cursor[:100]!r}",
            field="before",
        )
    return place


def _by(text: str | None) -> By | None:
    if text is None:
        return None
    for by in get_args(By):
        if text == by:
            found: By = by
            return found
    raise InvalidRequest(f"`by` must be agent or model, not {text[:100]!r}", field="by")


def _since(text: str, now: float) -> int:
    """Return a time from a date or a duration before now.

    The time is at most a day ago, because older steps are not kept.
    """
    begin = int(since(text, now))
    if begin > now:
        raise InvalidRequest("`since` must not be in the future", field="since")
    return max(begin, int(now) - DAY)


def _step(text: str | None, seconds: int, by: By | None) -> int:
    if text is None:
        return step_for(seconds, GOOD_TIMES)
    step = duration("step", text)
    if step < 1 or step % 1 or step > DAY:
        raise InvalidRequest(f"`step` must be whole seconds, not {text[:100]!r}", field="step")
    if seconds > step * MOST_TIMES[by]:
        raise InvalidRequest(
            f"`step` must be at least {ceil(seconds / MOST_TIMES[by])} for so long a time",
            field="step",
        )
    return int(step)
