"""Questions and answers between balancers, as JSON.

A version may add fields, never change them. Answers of another balancer are checked like all input
from outside: an answer of another form counts as missing.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NotRequired, TypeVar

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ...shared.inference import AgentId, Count, RequestId
from ...shared.reports.figures import figures_of
from ..fleet.view import FleetTotals
from ..history.series import Step
from ..management.answer_types import ListedRequest, Request
from ..store.records import EndedRequest

What = Literal["fleet", "requests", "request", "cancel", "metrics", "ended", "history"]


class AboutFleet(TypedDict):
    """A question for a balancer's part of the fleet and `limit` of its oldest requests."""

    limit: Count


class AboutRequest(TypedDict):
    """A question about one request."""

    id: RequestId


class AboutMetrics(TypedDict):
    """A question for metrics, with the `Accept` header that a client sent."""

    accept: str


class AboutHistory(TypedDict):
    """A question for the history from a time on, in seconds since 1970."""

    since: int


SUMMED = tuple(found for found in figures_of(FleetTotals) if found.figure.summed)
"""Figures of the fleet that are added up over all balancers."""

_Sums: Any = TypedDict(  # type: ignore[misc]
    "_Sums", {found.figure.summed: NotRequired[found.type] for found in SUMMED}
)


class FleetAnswer(_Sums):
    """One balancer: its totals, the slots that it took of each agent, and its oldest requests.

    Rates are tokens a second over the last second or so. An older version may lack some totals.
    """

    busy: dict[AgentId, Count]
    tokens_per_second: float
    rates: dict[AgentId, float]
    requests: list[Request]


class RequestsAnswer(TypedDict):
    """The matching requests, and their total number."""

    requests: list[ListedRequest]
    total: Count


class CancelAnswer(TypedDict):
    """Whether the request was found, and is being cancelled."""

    is_cancelled: bool


class EndedAnswer(TypedDict):
    """Matching ended requests that the store does not have yet, and their total number."""

    requests: list[EndedRequest]
    total: Count


class HistoryAnswer(TypedDict):
    """Steps of seconds that the store does not have yet.

    `source` is the balancer's run, as in the store.
    """

    source: str
    steps: list[Step]


T = TypeVar("T")


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def written(kind: type[T], value: T) -> str:
    """Return the JSON of a value, in ASCII, for `read`."""
    return json.dumps(_adapter(kind).dump_python(value, mode="json"), separators=(",", ":"))


def read(kind: type[T], body: bytes | str) -> T | None:
    """Return the value of this kind; `None` if `body` is of another form."""
    try:
        value: T = _adapter(kind).validate_json(body)
    except ValidationError:
        return None
    return value
