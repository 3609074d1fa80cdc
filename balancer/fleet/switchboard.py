"""The shell around the fleet's core: feeds it events, carries out every decision."""

import time
from collections.abc import AsyncIterator, Callable, Iterable

from ...shared.inference import GenerateRequest, RequestId
from .fleet import Fleet
from .recorder import Recorder
from .stream import Stream
from .view import FleetTotals, FleetView


class Switchboard:
    """Everything runs on one event loop; no method but `drain`, `run` and `watch` waits."""

    def __init__(
        self, fleet: Fleet, *, recorder: Recorder, clock: Callable[[], float] = time.monotonic
    ) -> None:
        raise NotImplementedError

    def open(self, request: GenerateRequest) -> Stream:
        """Accept `request`. Raises `QueueFull`, `ShuttingDown` or `ModelNotFound`."""
        raise NotImplementedError

    def cancel(self, ids: Iterable[RequestId]) -> int:
        """Cancel all of `ids` at once; the number of them that had not ended."""
        raise NotImplementedError

    def view(self) -> FleetView:
        """The fleet now, at a cost of its size."""
        raise NotImplementedError

    def totals(self) -> FleetTotals:
        """The fleet now in a few numbers, at a constant cost."""
        raise NotImplementedError

    def watch(self) -> AsyncIterator[FleetView]:
        """The fleet now, then again after each change, at most five times a second."""
        raise NotImplementedError

    async def drain(self, within: float) -> None:
        """Refuse what is new; return when every request has ended, after `within` seconds at most.

        What is left by then ends with `shutting_down`. Needs `run` to be running.
        """
        raise NotImplementedError

    def goodbye(self) -> None:
        """Say `Goodbye` to every agent, close their sockets and let no more in."""
        raise NotImplementedError

    async def run(self) -> None:
        """Keep the deadlines, until cancelled."""
        raise NotImplementedError
