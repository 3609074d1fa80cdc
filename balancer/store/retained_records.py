"""The saved form of a request that outlives its balancer.

The balancer that runs a request has a lease on the request. The lease expires if the balancer has
ended or cannot reach the store. Another balancer may then take the request.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRequest:
    """An accepted request. `owner` is empty if everybody owns the request.

    An owner has at most one request with a `name`. `digest` is the digest of the request's body,
    in hexadecimal digits. `document` is JSON: the request, and the data that its API needs to
    continue.
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

    They replace saved events from the same number on. `model` and `fingerprint` are known from the
    answer's beginning on. `has_ended` is true with the last event.
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

    Any balancer may take `released` requests at once. The balancer that runs `cancelled` requests
    ends them, now or later. All balancers are notified.
    """

    begun: tuple[SavedRequest, ...] = ()
    grown: tuple[SavedEvents, ...] = ()
    released: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedOutcome:
    """The outcome of a write.

    `unsaved` requests were not added, because their owner has another request with the same name.
    `lost` requests now run at another balancer, or were deleted. They must stop here.
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
    """Whether the caller has cancelled the request, at any balancer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedBounds:
    """The bounds of retained requests: number, bytes, and seconds since the last use."""

    num: int
    num_bytes: int
    age: float
