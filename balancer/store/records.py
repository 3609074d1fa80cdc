"""Records of the store. Times are seconds since 1970, in UTC.

The fleet's core never waits for a store.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from ...shared.reports.figures import Family, Figure

MAX_DOCUMENT = 2**24
"""Most characters of a saved desired state."""

MAX_ENDINGS = 10_000
"""Ended requests that a store keeps; older ones are deleted."""

MAX_CORDONS = 4096
"""Cordons that a store keeps; older ones are deleted."""

StepWidth = Literal[1, 60]
"""Seconds of one step of the history."""

STEPS_KEPT: dict[StepWidth, int] = {1: 3600, 60: 1440}
"""Steps that are kept of each width and balancer: an hour of seconds, a day of minutes."""

MAX_SOURCES = 16
"""Balancers whose steps are read together; of more, the latest steps are."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """The saved desired state: a JSON document. Revisions begin at 1 and grow by 1."""

    revision: int
    document: str


@dataclass(frozen=True, slots=True)
class Persist:
    """Save `document` as the revision after `expected`; 0 if nothing was saved before.

    A save whose confirmation was lost may still be in the store; load before the next save.
    """

    expected: int
    document: str


# ---- history


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRequest:
    """An ended request: how and when it ended, never its text.

    `code` is that of `Ending`. `kind` names the kind of a query. The sources of names bound their
    length. `queue_ms` and the like, and `moves`, are as in `Timings`. `balancer` is the name of the
    balancer that had it; `None` if there was only one.
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
    """Sort key of ended requests: latest first, then by id."""

    ended_at: float
    id: str

    @property
    def order(self) -> tuple[float, str]:
        """Return a value that is smaller for earlier places."""
        return -self.ended_at, self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingFilter:
    """A filter for at most `limit` ended requests after the place `before`, which are older.

    `None` accepts all.
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
    """A step of the history: `width` seconds from `at` on, with its counts as a JSON document.

    `source` is the run of the balancer that counted them.
    """

    width: StepWidth
    at: int
    document: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class StepRange:
    """The steps of one width from `since` on, and before `until`, if given."""

    width: StepWidth
    since: int
    until: int | None = None


# ---- access keys


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedKey:
    """A saved access key. `name` is unique; revisions begin at 1 and grow by 1.

    `digest` is the SHA-256 of the key; the key itself is stored nowhere. `limits` and `labels` are
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
"""Seconds. Days begin at midnight, UTC, and are numbered from 1970 on."""

USAGE_DAYS = 400
"""Days whose usage is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageCounts:
    """Counts of use.

    `requests` counts all requests that ended or were refused, `errors` the failed ones.

    `cached_tokens` is a part of `prompt_tokens`.
    """

    requests: int = 0
    errors: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow(UsageCounts):
    """One caller's use of one model on one day, as one run of a balancer counted it.

    A later row of the same run replaces an earlier one, so a row can be written twice.
    """

    run: str
    day: int
    caller: str
    model: str


UsageColumn = Literal["day", "caller", "model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSum(UsageCounts):
    """Summed usage; `None` in a column by which it is not grouped."""

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
    """The store's status, as the balancer sees it.

    `away_since` is on the clock of the event loop; `problem` says why the store is away.
    `num_pending` items wait to be written. `num_dropped` items were never written: the store
    refuses them, or too many waited. `fault`: the store was reached, but refused a part of the last
    write.
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
    """An agent that an operator wants to get no new work, from `since` on.

    `agent` is the id it had.

    Its running requests move at `deadline`. Both are in seconds since 1970, by the clocks of
    balancers.
    """

    agent: str
    name: str
    since: float
    deadline: float | None = None


# ---- logins


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSession:
    """A log-in to the dashboard until `expires_at`, in seconds since 1970.

    `id` is the digest of a secret token; `name` and `digest` belong to the key.
    """

    id: str
    name: str
    digest: str
    expires_at: float


# ---- the diary

MAX_DIARY = 10_000
"""Entries of the diary that a store keeps; older ones are deleted."""

MAX_HOSTS = 4096
"""Hosts that a store remembers; those that were seen longest ago are forgotten."""

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

    `message` is for people. `by` is the name of the key of the person who did it; `None` if nobody
    did, or no key is needed. `number` orders entries; the store assigns it.
    """

    number: int = 0
    at: float
    kind: DiaryKind
    subject: str
    message: str
    by: str | None = None


HostState = Literal["here", "drained", "stopped", "lost"]
"""Connected, or why it is not: an operator had drained it, it ended in good order, or neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedHost:
    """A host of the fleet, present or past, in its `state` since the time `since`.

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
