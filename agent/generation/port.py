"""The port: `Generation` answers requests, a `Listener` receives the answers.

`Generation` takes a balancer's `Start` and returns neutral items. Its local side
(`local_generation`) runs a model in this process; the other side (`upstream`) forwards to a server.
"""

from collections.abc import Callable
from typing import NewType, Protocol

from ...shared.errors import RequestError
from ...shared.messages import Item, Start
from ...shared.queries import Query, Result
from ..sequence_id import SequenceId

QueryId = NewType("QueryId", int)
"""The handle of one query in this agent process."""


class Listener(Protocol):
    """Receives generated items; one balancer's connection."""

    def produced(self, items: tuple[Item, ...], released: tuple[SequenceId, ...], /) -> None:
        """Take the `items` of one event; the resources of the `released` sequences are free.

        The last item of each request is `Ended` or `Refused`. A sequence is released once: with
        that item, or later if its prompt is still being saved.
        """


class Generation(Protocol):
    """Answers requests.

    All methods are called on the event loop's thread, and may call the listener before they return.
    Methods other than `start` ignore sequences that have ended.
    """

    def start(self, id: SequenceId, start: Start, listener: Listener, /) -> None:
        """Answer the request as the sequence `id`; the listener receives all its items."""

    def cancel(self, id: SequenceId, /) -> None:
        """End the sequence early. A complete answer ends normally."""

    def fail(self, id: SequenceId, error: RequestError, /) -> None:
        """End the sequence with `error`. A complete answer ends normally, but at once."""

    def discard(self, id: SequenceId, /) -> None:
        """End the sequence without any further item; it is still released."""


class Queries(Protocol):
    """Answers queries, which take no slot. All methods are called on the event loop's thread."""

    def answer(self, id: QueryId, query: Query, reply: Callable[[Result], None], /) -> None:
        """Answer `query`; `reply` gets the result, unless the query is withdrawn before."""

    def withdraw(self, id: QueryId, /) -> None:
        """Withdraw the query: its result is no longer needed."""
