"""Requests that outlive their connection: their events are kept, for any number of readers.

A request is kept under a key of its caller's. It runs to its end whether anybody reads or not, and
its events stay for a while after that. One that ended with an error has no use for later readers:
it is forgotten, so that asking again runs it again.

Bounded in number, bytes and age; what was used least recently is forgotten first. Forgetting one
that runs cancels it only where nobody reads it.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from ....shared.errors import Conflict
from ....shared.inference import Done, Event, Failed, GenerateRequest, RequestId, Token, Waiting
from ..caller import Caller
from .fleet_runtime import FleetRuntime, new_request_id
from .stream import Stream

MAX_KEPT = 10_000
"""Most requests that are kept, however small they are."""

DEFAULT_BYTES = 64 * 2**20
DEFAULT_AGE = 3600.0

EVENT_BYTES = 256
"""What an event counts for besides its text, and each token's log-probabilities too."""


class KeptKey(NamedTuple):
    """`owner` is whom requests of a caller belong to; a `name` means nothing to other owners."""

    owner: str | None
    name: str


class KeptRequest:
    """One request's events so far. `digest` is of the body that asked for it."""

    def __init__(
        self,
        id: RequestId,
        digest: bytes,
        on_change: Callable[["KeptRequest", int], None],
        *,
        keeps_failure: bool,
    ) -> None:
        """`on_change` is told by how many bytes the events grew.

        With `keeps_failure` one that ended with an error is kept, too.
        """
        self.id = id
        self.digest = digest
        self.keeps_failure = keeps_failure
        self.end: Done | Failed | None = None
        self.num_bytes = 0
        self.used_at = 0.0
        self.events: list[Event] = []
        """So far, without those that say that it waits."""
        self._is_kept = True
        self._on_change = on_change
        self._readers: dict[Stream, None] = {}

    @property
    def is_read(self) -> bool:
        """Whether anybody reads it."""
        return bool(self._readers)

    def put(self, event: Event) -> None:
        """Another event: keep it, and pass it on."""
        if isinstance(event, Done | Failed):
            self.end = event
        for reader in list(self._readers):
            reader.put(event)
        if self.end is not None:
            self._readers.clear()
        if self._is_kept and not isinstance(event, Waiting):
            size = _size(event)
            self.events.append(event)
            self.num_bytes += size
            self._on_change(self, size)

    def forget(self) -> None:
        """Keep no further events; present readers still get theirs."""
        self._is_kept = False
        if self.end is None:
            self.events = []

    def attach(self) -> Stream:
        """Its events from the first one on, none merged. Closing the stream cancels nothing."""
        stream = Stream(self.id, lambda _: self._detach(stream), merges=False)
        for event in self.events:
            stream.put(event)
        if self.end is None:
            self._readers[stream] = None
        return stream

    def _detach(self, stream: Stream) -> None:
        self._readers.pop(stream, None)


class KeptRequests:
    """One for each balancer. `clock` gives seconds."""

    def __init__(
        self,
        runtime: FleetRuntime,
        *,
        max_bytes: int = DEFAULT_BYTES,
        max_age: float = DEFAULT_AGE,
        max_kept: int = MAX_KEPT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_age` counts from a request's last use, in seconds."""
        self._runtime = runtime
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._max_kept = max_kept
        self._clock = clock
        self._kept: OrderedDict[KeptKey, KeptRequest] = OrderedDict()
        self._keys: dict[RequestId, KeptKey] = {}
        self.num_bytes = 0
        """About how many bytes all events take."""

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def keeps_any(self) -> bool:
        """Whether anything can be kept."""
        return self._max_bytes > 0

    def open(
        self,
        name: str,
        digest: bytes,
        request: GenerateRequest,
        *,
        caller: Caller,
        id: RequestId | None = None,
        tell_waiting: float | None = None,
        together: int = 1,
        keeps_failure: bool = False,
    ) -> KeptRequest:
        """What is kept under this name, or a new request, with this `id` if one is given.

        Raises `Conflict` if something else was asked for under it, and as `FleetRuntime.open`.
        """
        key = KeptKey(caller.owner, name)
        if (kept := self._find(key)) is not None:
            if kept.digest != digest:
                raise Conflict("this idempotency key was used for another request")
            return kept
        kept = KeptRequest(
            id or new_request_id(), digest, self._changed, keeps_failure=keeps_failure
        )
        self._kept[key], self._keys[kept.id] = kept, key
        kept.used_at = self._clock()
        try:
            self._runtime.open_into(
                kept, request, caller=caller, tell_waiting=tell_waiting, together=together
            )
        except BaseException:
            self._remove(key)
            raise
        self._make_room()
        return kept

    def find_by_id(self, id: RequestId, *, caller: Caller) -> KeptRequest | None:
        """The caller's request with this id, if it is kept."""
        key = self._keys.get(id)
        return None if key is None or key.owner != caller.owner else self._find(key)

    def forget_id(self, id: RequestId, *, caller: Caller) -> None:
        """Keep it no longer; it is cancelled if it runs and nobody reads it."""
        key = self._keys.get(id)
        if key is not None and key.owner == caller.owner:
            self._remove(key)

    def cancel(self, kept: KeptRequest) -> None:
        """End it early, if it runs; it stays kept."""
        self._runtime.cancel([kept.id])

    def _find(self, key: KeptKey) -> KeptRequest | None:
        self._make_room()
        kept = self._kept.get(key)
        if kept is not None:
            self._use(key, kept)
        return kept

    def _use(self, key: KeptKey, kept: KeptRequest) -> None:
        kept.used_at = self._clock()
        self._kept.move_to_end(key)

    def _changed(self, kept: KeptRequest, num_bytes: int) -> None:
        key = self._keys[kept.id]
        self.num_bytes += num_bytes
        self._use(key, kept)
        if isinstance(kept.end, Failed) and not kept.keeps_failure:
            self._remove(key)
        self._make_room()

    def _make_room(self) -> None:
        while self._kept:
            key, eldest = next(iter(self._kept.items()))
            if self._fits and self._clock() - eldest.used_at <= self._max_age:
                return
            self._remove(key)

    @property
    def _fits(self) -> bool:
        return (
            self.keeps_any
            and self.num_bytes <= self._max_bytes
            and len(self._kept) <= self._max_kept
        )

    def _remove(self, key: KeptKey) -> None:
        kept = self._kept.pop(key)
        del self._keys[kept.id]
        self.num_bytes -= kept.num_bytes
        kept.forget()
        if kept.end is None and not kept.is_read:
            # Not at once: the runtime may be in the middle of delivering, and a reader may come.
            asyncio.get_running_loop().call_soon(self._cancel_unread, kept)

    def _cancel_unread(self, kept: KeptRequest) -> None:
        if not kept.is_read:
            self.cancel(kept)

    def check_integrity(self) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        if self.num_bytes != sum(each.num_bytes for each in self._kept.values()):
            raise RuntimeError("the bytes do not add up")
        if self.num_bytes > self._max_bytes or len(self._kept) > self._max_kept:
            raise RuntimeError("more is kept than may be")
        if {each.id: key for key, each in self._kept.items()} != self._keys:
            raise RuntimeError("the ids are not those of what is kept")


def _size(event: Event) -> int:
    if not isinstance(event, Token):
        return EVENT_BYTES
    num_explained = sum(1 + len(each.top) for each in event.log_probs)
    return EVENT_BYTES * (1 + num_explained) + 2 * len(event.text)
