"""The saved form of a request that is to outlive its balancer.

A balancer that runs a request has a lease on it. If the lease ends, because the balancer is gone or
cannot reach the store, another balancer may take the request.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRequest:
    """One request as it was accepted. `owner` is empty where it belongs to everybody.

    An owner has one request of a `name`. `digest` is of the body that asked for it, in hexadecimal
    digits. `document` is JSON: the request, and what its API needs to go on with it.
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

    They take the place of events that were saved from the same number on. The answer so far is of
    `model` and `fingerprint`, once it has begun; with the last event it `has_ended`.
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
    """`unsaved` were not added, since their owner has another request of that name.

    `lost` are with another balancer now, or were deleted: they must not go on here.
    """

    unsaved: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRequest:
    """A saved request and all its events, as documents in their order."""

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
