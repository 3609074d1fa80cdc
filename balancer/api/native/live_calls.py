"""The calls of one socket that have not been answered, and which requests a `cancel` selects.

Invariant: a call is here from before its first event until its answer is written.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ....shared.errors import InvalidRequest, RateLimited
from ....shared.inference import RequestId
from .rpc import RpcId, is_id

MAX_LIVE_REQUESTS = 1024
"""Maximum queued and running requests per socket; each entry of a batch counts as one."""


class Opened(Protocol):
    """What the fleet runtime has opened for a call: a stream, or a query handle."""

    @property
    def id(self) -> RequestId | None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LiveCall:
    """`items` are what a batch calls its `streams`."""

    streams: Sequence[Opened]
    task: asyncio.Task[None]
    items: Sequence[str] = ()

    def request_ids(self, item: str | None = None) -> list[RequestId]:
        """The ids of all its requests, or of the one at that `item` of a batch."""
        streams = self.streams
        if item is not None:
            pairs = zip(self.items, self.streams, strict=False)  # without items there are none
            streams = [stream for name, stream in pairs if name == item]
        return [stream.id for stream in streams if stream.id is not None]

    def close(self) -> None:
        # The task may not have begun, so the streams are closed here too.
        self.task.cancel()
        for stream in self.streams:
            stream.close()


class LiveCalls:
    """By the id that the client gave each."""

    def __init__(self) -> None:
        self._calls: dict[RpcId, LiveCall] = {}
        self._num_requests = 0

    def __contains__(self, id: object) -> bool:
        return id in self._calls

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Those that answer."""
        return [call.task for call in self._calls.values()]

    def add(self, id: RpcId, call: LiveCall) -> None:
        """A call begins."""
        self._calls[id] = call
        self._num_requests += len(call.streams)

    def remove(self, id: RpcId) -> None:
        """A call has been answered."""
        self._num_requests -= len(self._calls.pop(id).streams)

    def close(self) -> None:
        """The socket is gone, so nobody is left to answer."""
        for call in self._calls.values():
            call.close()

    def check_room(self, num_requests: int) -> None:
        """Raises `RateLimited` where so many more are too many."""
        num_live = self._num_requests
        if num_live + num_requests > MAX_LIVE_REQUESTS:
            raise RateLimited(
                f"a socket may have {MAX_LIVE_REQUESTS} requests at once, {num_live} are running"
            )

    def named(self, params: object) -> list[RequestId]:
        """The requests that a `cancel` selects. Raises `InvalidRequest`."""
        match params:
            case {"all": True, **rest} if not rest:
                return [id for live in self._calls.values() for id in live.request_ids()]
            case {"id": id, **rest} if not rest and is_id(id):
                return self._calls[id].request_ids() if id in self._calls else []
            case {"id": id, "item": str(item), **rest} if not rest and is_id(id):
                return self._calls[id].request_ids(item) if id in self._calls else []
            case _:
                raise InvalidRequest(
                    'give either `"id"`, that of a call (and `"item"`, one of its batch), or '
                    '`"all": true`'
                )
