"""The port: `Generation` answers requests, a `Listener` receives the answers.

`Generation` takes a balancer's `Start` and gives neutral items. Its local side (`local_generation`)
runs a model in this process; the other side (`upstream`) forwards to a server.
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
    """Receives what is generated: one balancer's connection."""

    def produced(self, items: tuple[Item, ...], released: tuple[SequenceId, ...], /) -> None:
        """`items` came, all of one event; the resources of the `released` sequences are free.

        The last item of each request is `Ended` or `Refused`. A sequence is released once: with
        that item, or later if its prompt is still being saved.
        """


class Generation(Protocol):
    """All methods belong to the event loop's thread. Each may call the listener before it returns.

    Methods other than `start` ignore sequences that have ended.
    """

    def start(self, id: SequenceId, start: Start, listener: Listener, /) -> None:
        """Answer its request as the sequence `id`; the listener hears everything, up to its end."""

    def cancel(self, id: SequenceId, /) -> None:
        """End it early with what was generated. A complete answer ends as it would have."""

    def fail(self, id: SequenceId, error: RequestError, /) -> None:
        """End it with `error`. A complete answer ends as it would have, but at once."""

    def discard(self, id: SequenceId, /) -> None:
        """End it without any further item; it is still released."""


class Queries(Protocol):
    """Answers queries, which take no slot. All methods belong to the event loop's thread."""

    def answer(self, id: QueryId, query: Query, reply: Callable[[Result], None], /) -> None:
        """Answer `query`; `reply` gets the result, unless it is withdrawn before."""

    def withdraw(self, id: QueryId, /) -> None:
        """The result is not needed any more."""
