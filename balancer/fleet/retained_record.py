"""The record of a request that outlives its connection, besides its events."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ...shared.inference import Done, Event, Failed, GenerateRequest, RequestId
from .caller import Caller


class RetainedKey(NamedTuple):
    """The key of a retained request: its `owner`, and a `name` that is unique for the owner."""

    owner: str | None
    name: str


class RetainedRecord(NamedTuple):
    """`digest` is of the body that asked for it, `created_at` in seconds since 1970.

    With `keeps_failure` one that ended with an error is retained, too. `model` is the name in the
    answer where the request named none.
    """

    key: RetainedKey
    id: RequestId
    digest: bytes
    created_at: float
    keeps_failure: bool = False
    model: str = ""


class AskedRequest(NamedTuple):
    """A request and its caller.

    `note` is its API's own: what it needs to answer at another run of the balancer, as JSON.
    """

    request: GenerateRequest
    caller: Caller
    note: bytes = b""


class Retained(Protocol):
    """A request that outlives its connection, as it is to be written."""

    @property
    def id(self) -> RequestId: ...

    @property
    def record(self) -> RetainedRecord: ...

    @property
    def events(self) -> Sequence[Event]:
        """The events so far, without those that say that it waits."""

    @property
    def end(self) -> Done | Failed | None: ...
