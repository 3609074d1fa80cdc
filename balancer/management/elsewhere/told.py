"""What balancers ask one another and answer, as JSON. A version may add fields, never change them.

Answers of another balancer are checked like whatever comes from outside: one that does not fit
counts as none.
"""

import json
from typing import Literal, TypeVar

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ....shared.inference import AgentId, Count, RequestId
from ..answer_types import ListedRequest, Request
from ..request_filter import RequestFilter

What = Literal["fleet", "requests", "request", "cancel", "metrics"]


class AboutFleet(TypedDict):
    """How many of its oldest requests a balancer is to tell at most."""

    limit: Count


class AboutRequest(TypedDict):
    """Which request."""

    id: RequestId


class AboutMetrics(TypedDict):
    """In which format: the header that a client sent."""

    accept: str


class ToldFleet(TypedDict):
    """One balancer: its queue, the slots that it took of each agent, and its oldest requests.

    Rates are tokens a second, as of the last second or so.
    """

    queue_depth: Count
    slots_busy: Count
    num_requests: Count
    busy: dict[AgentId, Count]
    tokens_per_second: float
    rates: dict[AgentId, float]
    requests: list[Request]


class ToldRequests(TypedDict):
    """Those that match, and how many there are in all."""

    requests: list[ListedRequest]
    total: Count


class ToldCancel(TypedDict):
    """Whether the request was there, and is cancelled."""

    is_cancelled: bool


T = TypeVar("T")

ABOUT_FLEET = TypeAdapter(AboutFleet)
ABOUT_REQUEST = TypeAdapter(AboutRequest)
ABOUT_METRICS = TypeAdapter(AboutMetrics)
FILTER = TypeAdapter(RequestFilter)
FLEET = TypeAdapter(ToldFleet)
REQUESTS = TypeAdapter(ToldRequests)
CANCEL = TypeAdapter(ToldCancel)


def written(kind: TypeAdapter[T], value: T) -> str:
    """As `read` reads it; ASCII only."""
    return json.dumps(kind.dump_python(value, mode="json"), separators=(",", ":"))


def read(kind: TypeAdapter[T], body: bytes | str) -> T | None:
    """`None` for what is not of this kind."""
    try:
        return kind.validate_json(body)
    except ValidationError:
        return None
