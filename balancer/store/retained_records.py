"""What is saved of a request that is to outlive its balancer.

A balancer that runs a request has a lease on it. One whose lease is over, since its balancer is
gone or cannot reach the store, may be taken by another.
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
    """What to write together.

    What was `released` may be taken by any balancer at once. What was `cancelled` is to be ended by
    the balancer that runs it, now or later; all balancers are notified.
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
    """Whether its caller wants it to end, at whichever balancer that was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedBounds:
    """How much a store retains: requests, bytes, and seconds since the last use."""

    num: int
    num_bytes: int
    age: float
