"""The saved form of a request that outlives its balancer.

A balancer that runs a request has a lease on it. If the lease ends, because the balancer has ended
or cannot reach the store, another balancer may take the request.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRequest:
    """An accepted request. `owner` is empty if it belongs to everybody.

    An owner has one request of a `name`. `digest` is that of the request's body, in hexadecimal
    digits. `document` is JSON: the request, and what its API needs to continue it.
    """

    id: str
    owner: str
    name: str
    digest: str
    document: str
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedEvents:
    """Events of the request `id`, as JSON, from number `start` on.

    They replace saved events from the same number on. `model` and `fingerprint` belong to the
    answer so far, once it has begun; with the last event it `has_ended`.
    """

    id: str
    start: int
    document: str
    model: str | None = None
    fingerprint: str | None = None
    has_ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedWrite:
    """Changes of retained requests that are written together.

    Any balancer may take `released` requests at once. `cancelled` requests are ended by the
    balancer that runs them, now or later; all balancers are notified.
    """

    begun: tuple[SavedRequest, ...] = ()
    grown: tuple[SavedEvents, ...] = ()
    released: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedOutcome:
    """The outcome of a write.

    `unsaved` were not added, because their owner has another request of that name.

    `lost` run at another balancer now, or were deleted: they must stop here.
    """

    unsaved: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRequest:
    """A saved request and all its events, as documents in order."""

    request: SavedRequest
    events: tuple[str, ...]
    has_ended: bool
    model: str | None = None
    fingerprint: str | None = None
    is_cancelled: bool = False
    """Whether the caller has cancelled it, at any balancer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedBounds:
    """The most that a store retains: requests, bytes, and seconds since the last use."""

    num: int
    num_bytes: int
    age: float
