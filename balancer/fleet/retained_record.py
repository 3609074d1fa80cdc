"""The record of a request that outlives its connection, without its events."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ...shared.inference import Done, Event, Failed, GenerateRequest, RequestId
from .caller import Caller


class RetainedKey(NamedTuple):
    """The key of a retained request: its `owner`, and a `name` that is unique for the owner."""

    owner: str | None
    name: str


class RetainedRecord(NamedTuple):
    """The description of a retired request without its events."""

    key: RetainedKey
    id: RequestId
    digest: bytes
    created_at: float
    keeps_failure: bool = False
    model: str = ""


class AskedRequest(NamedTuple):
    """A request and its caller.

    `note` is JSON of the request's API, which answers with it in another run of the balancer.
    """

    request: GenerateRequest
    caller: Caller
    note: bytes = b""


class Retained(Protocol):
    """A request that outlives its connection, in the form that is saved."""

    @property
    def id(self) -> RequestId: ...

    @property
    def record(self) -> RetainedRecord: ...

    @property
    def events(self) -> Sequence[Event]:
        """Return the events so far, without `Waiting` events."""

    @property
    def end(self) -> Done | Failed | None: ...
