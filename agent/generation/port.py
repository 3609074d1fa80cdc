"""The port: `Generation` answers requests, a `Listener` receives the answers.

`Generation` takes a neutral request and gives neutral items. Its local side
(`local_generation`) runs a model in this process; another side could forward to a server.

A ticket is the handle of one request. Whoever starts the request draws it, so that a pure core can
name a request before its shell starts it. Tickets are unique in one agent process: request ids are
not, since every balancer has its own and may use one again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NewType, Protocol

from ...shared.continuation import Continuation
from ...shared.errors import RequestError
from ...shared.inference import GenerateRequest, RequestId
from ...shared.inference.prefix_peers import PrefixSource
from ...shared.messages import Item
from ...shared.queries import Query, Result

Ticket = NewType("Ticket", int)
"""The handle of one request or query in this agent process."""


@dataclass(frozen=True, slots=True)
class NewRequest:
    """Answer `request`; its items carry the balancer's `id`.

    With a `continuation` another agent began the answer: give only what comes after that.
    `traceparent` names the span that this is a part of. Another agent may have a beginning of the
    prompt: to `fetch` it is thought cheaper than to compute it.
    """

    ticket: Ticket
    id: RequestId
    request: GenerateRequest
    continuation: Continuation | None = None
    traceparent: str | None = None
    fetch: PrefixSource | None = None


class Listener(Protocol):
    """Receives what is generated: one balancer's connection."""

    def produced(self, items: tuple[Item, ...], released: tuple[Ticket, ...], /) -> None:
        """`items` came, all of one event; the resources of the `released` tickets are free.

        The last item of each request is `Ended` or `Refused`. A ticket is released once: with that
        item, or later if its prompt is still being saved.
        """


class Generation(Protocol):
    """All methods belong to the event loop's thread. Each may call the listener before it returns.

    Methods other than `start` ignore tickets that have ended.
    """

    def start(self, new: NewRequest, listener: Listener, /) -> None:
        """Answer it; the listener hears everything, up to its end."""

    def cancel(self, ticket: Ticket, /) -> None:
        """End it early with what was generated. A complete answer ends as it would have."""

    def fail(self, ticket: Ticket, error: RequestError, /) -> None:
        """End it with `error`. A complete answer ends as it would have, but at once."""

    def discard(self, ticket: Ticket, /) -> None:
        """End it without any further item; it is still released."""


class Queries(Protocol):
    """Answers queries, which take no slot. All methods belong to the event loop's thread."""

    def answer(self, ticket: Ticket, query: Query, reply: Callable[[Result], None], /) -> None:
        """Answer `query`; `reply` gets the result, unless it is withdrawn before."""

    def withdraw(self, ticket: Ticket, /) -> None:
        """The result is not wanted any more."""
