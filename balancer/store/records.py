"""The records of the store. Times are in seconds since 1970, in UTC.

The fleet's core never waits for a store.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from ...shared.reports.figures import Family, Figure

MAX_DOCUMENT = 2**24
"""Maximum characters of a saved desired state."""

MAX_ENDINGS = 10_000
"""Maximum ended requests in a store. Older requests are deleted."""

MAX_CORDONS = 4096
"""Maximum cordons in a store. Older cordons are deleted."""

StepWidth = Literal[1, 60]
"""The seconds of one step of the history."""

STEPS_KEPT: dict[StepWidth, int] = {1: 3600, 60: 1440}
"""Kept steps of each width and balancer: an hour of seconds, a day of minutes."""

MAX_SOURCES = 16
"""Maximum balancers whose steps are read together.

If there are more, the latest steps are read.
"""


@dataclass(frozen=True, slots=True)
class SavedState:
    """The saved desired state: a JSON document. Revisions begin at 1 and grow by 1."""

    revision: int
    document: str


@dataclass(frozen=True, slots=True)
class Persist:
    """A request to save `document` as the revision after `expected`.

    `expected` is 0 if nothing was saved before. After a lost confirmation the save may still be in
    the store, so load the state before the next save.
    """

    expected: int
    document: str


# ---- history


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRequest:
    """An ended request: how and when the request ended, without any text.

    `code` is the code of `Ending`. `kind` names the kind of a query. The sources of names bound
    their length. Durations and `moves` are as in `Timings`. `balancer` is the name of the
    request's balancer; `None` if there was only one balancer.
    """

    id: str
    ended_at: float
    kind: str
    code: str
    caller: str
    model: str | None = None
    agent: str | None = None
    error: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    queue_ms: float = 0.0
    first_token_ms: float | None = None
    total_ms: float = 0.0
    prefill_tokens_per_second: float | None = None
    decode_tokens_per_second: float | None = None
    moves: int = 0
    balancer: str | None = None


class EndingPlace(NamedTuple):
    """The sort key of ended requests: latest first, then by id."""

    ended_at: float
    id: str

    @property
    def order(self) -> tuple[float, str]:
        """Return a value that is smaller for earlier places."""
        return -self.ended_at, self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingFilter:
    """A filter for at most `limit` ended requests that are older than the place `before`.

    A field that is `None` accepts all requests.
    """

    model: str | None = None
    agent: str | None = None
    caller: str | None = None
    code: str | None = None
    before: EndingPlace | None = None
    limit: int = 200

    def fits(self, ended: EndedRequest) -> bool:
        """Whether the request matches the filter."""
        return (
            self.model in (None, ended.model)
            and self.agent in (None, ended.agent)
            and self.caller in (None, ended.caller)
            and self.code in (None, ended.code)
            and (self.before is None or place_of(ended).order > self.before.order)
        )


def place_of(ended: EndedRequest) -> EndingPlace:
    """Return the sort key of the request."""
    return EndingPlace(ended.ended_at, ended.id)


@dataclass(frozen=True, slots=True)
class SavedStep:
    """A step of the history: `width` seconds from `at` on, with the counts as a JSON document.

    `source` is the run of the balancer that counted.
    """

    width: StepWidth
    at: int
    document: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class StepRange:
    """The steps of one width from `since` on, and before `until` if given."""

    width: StepWidth
    since: int
    until: int | None = None


# ---- access keys


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedKey:
    """A saved access key. `name` is unique; revisions begin at 1 and grow by 1.

    `digest` is the SHA-256 of the key. The key itself is stored nowhere. `limits` and `labels` are
    JSON.
    """

    name: str
    revision: int
    digest: str
    role: str
    limits: str
    labels: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    rotated_at: float | None = None


DAY = 86_400
"""Seconds of a day. Days begin at midnight, UTC, and are numbered from 1970 on."""

USAGE_DAYS = 400
"""Number of days whose usage is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageCounts:
    """Counts of use.

    `requests` counts ended and refused requests, `errors` the failed ones. `cached_tokens` is a
    part of `prompt_tokens`.
    """

    requests: int = 0
    errors: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow(UsageCounts):
    """The use of one model by one caller on one day, as counted by one run of a balancer.

    A later row of the same run replaces an earlier row, so a row may be written twice.
    """

    run: str
    day: int
    caller: str
    model: str


UsageColumn = Literal["day", "caller", "model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSum(UsageCounts):
    """Summed usage. A column that is not in `by` is `None`."""

    day: int | None = None
    caller: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery:
    """A query for usage from the day `since` to `until` inclusive, summed by one or more columns.

    The result has at most `limit` sums.
    """

    since: int
    until: int
    by: tuple[UsageColumn, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The status of the store, as seen by the balancer.

    `away_since` is on the clock of the event loop. `problem` says why the store is away.
    `num_pending` items wait to be written. `num_dropped` items were never written, because the
    store refused them or too many waited. `fault` is given if the store was reached but refused a
    part of the last write.
    """

    away_since: float | None = None
    problem: str | None = None
    num_pending: int = 0
    num_dropped: Annotated[
        int,
        Figure(
            metric=Family(
                "store_lost",
                "Records of the history, retained requests and conversations that were never "
                "written to the store: they cannot be, or too many waited while it was away.",
                is_counter=True,
            )
        ),
    ] = 0
    fault: str | None = None

    @property
    def is_away(self) -> bool:
        """Whether the last attempt failed."""
        return self.away_since is not None


@dataclass(frozen=True, slots=True)
class SavedCordon:
    """An agent that gets no new requests from `since` on, by an operator's order.

    `agent` is the id of the agent at that time. At `deadline` its running requests move to other
    agents. Both times are in seconds since 1970, by the clocks of balancers.
    """

    agent: str
    name: str
    since: float
    deadline: float | None = None


# ---- logins


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSession:
    """A login to the dashboard until `expires_at`, in seconds since 1970.

    `id` is the digest of a secret token. `name` and `digest` belong to the key.
    """

    id: str
    name: str
    digest: str
    expires_at: float


# ---- the diary

MAX_DIARY = 10_000
"""Maximum entries of the diary in a store. Older entries are deleted."""

MAX_HOSTS = 4096
"""Maximum hosts in a store. Hosts that were last seen longest ago are deleted."""

DiaryKind = Literal[
    "balancer_started",
    "leader_changed",
    "host_came",
    "host_went",
    "host_drained",
    "host_resumed",
    "host_forgotten",
    "model_loaded",
    "model_failed",
    "models_changed",
    "issue_began",
    "issue_ended",
    "key_made",
    "key_rotated",
    "key_revoked",
    "refused",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiaryEntry:
    """An event at the time `at`, about a `subject`: a host, a model, a key or a balancer.

    `message` is for people. `by` is the name of the key that caused the event; `None` if no key
    did. `number` orders entries, and is assigned by the store.
    """

    number: int = 0
    at: float
    kind: DiaryKind
    subject: str
    message: str
    by: str | None = None


HostState = Literal["here", "drained", "stopped", "lost"]
"""`here` is connected. `drained`, `stopped` in good order, and `lost` say why a host is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedHost:
    """A present or past host of the fleet. The host has been in `state` since the time `since`.

    `document` is JSON.
    """

    name: str
    state: HostState
    since: float
    first_seen: float
    last_seen: float
    document: str


def storable_text(text: str) -> str:
    """Return `text` without characters that PostgreSQL's text cannot hold."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
