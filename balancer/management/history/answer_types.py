"""What the history answers, as types; the OpenAPI document is made of them."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from ....shared.inference import Count
from ...history.chart import By, Line
from ...history.series import Levels
from ...store.records import EndedRequest, UsageColumn


class History(TypedDict):
    """Columns over `times`, seconds since 1970: the beginnings of steps of `step` seconds.

    Steps of which nothing is known are left out. `levels` are the fleet's; `lines` has one for the
    fleet, or one for each agent or model. `missing` names balancers that did not answer in time:
    of theirs, what they did not save yet is left out.
    """

    since: int
    step: Count
    by: By | None
    times: list[int]
    levels: list[Levels]
    lines: list[Line]
    missing: NotRequired[list[str]]


class EndedRequests(TypedDict):
    """Requests that ended, of all balancers over one store, latest first.

    `total` counts all that are kept. `next` is the `before` of the page that follows; null where
    there is none. `missing` names balancers that did not answer in time: those are left out that
    ended there and are not saved yet.
    """

    requests: list[EndedRequest]
    total: Count
    next: str | None
    missing: NotRequired[list[str]]


class UsageCounts(TypedDict):
    """`requests` are all that ended or were refused, `errors` those with an error.

    `cached_tokens` are some of `prompt_tokens`.
    """

    requests: Count
    errors: Count
    prompt_tokens: Count
    cached_tokens: Count
    completion_tokens: Count


class UsageEntry(UsageCounts):
    """Usage of one day, caller and model, or of all where a column is missing.

    An empty model: requests that named none that exists, and what was not told apart.
    """

    day: NotRequired[str]
    caller: NotRequired[str]
    model: NotRequired[str]


class Usage(TypedDict):
    """Usage of the days from `since` to `until` (UTC, both among them), added up by `by`."""

    since: str
    until: str
    by: list[UsageColumn]
    usage: list[UsageEntry]
    total: UsageCounts


class ManagementHealth(TypedDict):
    """The process is alive; `store` is where desired state and history are kept.

    `away`: it cannot be reached or written. `failing`: it does not take all that is written to it.
    """

    status: Literal["ok"]
    store: Literal["ok", "away", "failing"]
    store_problem: NotRequired[str]
