"""The queries that one balancer has put to this agent, which take no slot.

Invariant: each is answered at most once, and not after it was withdrawn or its connection was lost.
"""

from collections.abc import Iterator

from ...shared.errors import QueueFull, RequestError, to_wire
from ...shared.inference import RequestId
from ...shared.messages import Ask, Reply
from ...shared.queries import Declined, Result
from ..generation.port import Ticket
from .decisions import AnswerQuery, WithdrawQuery

MAX_QUERIES = 256
"""Most queries of one balancer at once; a balancer asks for far fewer."""


class Queries:
    """`tickets` are shared with the agent's other sessions."""

    def __init__(self, tickets: Iterator[Ticket]) -> None:
        self._tickets = tickets
        self._ids: dict[Ticket, RequestId] = {}
        self._open: dict[RequestId, Ticket] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, id: object) -> bool:
        return id in self._open

    def accept(self, ask: Ask) -> AnswerQuery | Reply:
        """A query that is not here yet: take it on, or decline it."""
        if len(self._open) >= MAX_QUERIES:
            return declined(ask.id, QueueFull(f"the agent answers {MAX_QUERIES} queries already"))
        ticket = next(self._tickets)
        self._open[ask.id] = ticket
        self._ids[ticket] = ask.id
        return AnswerQuery(ticket, ask.query)

    def withdraw(self, id: RequestId) -> list[WithdrawQuery]:
        """The balancer cancels a query."""
        if id not in self._open:
            return []
        ticket = self._open.pop(id)
        del self._ids[ticket]
        return [WithdrawQuery(ticket)]

    def answered(self, ticket: Ticket, result: Result) -> list[Reply]:
        """There is a result; ignored if the query was withdrawn."""
        if (id := self._ids.pop(ticket, None)) is None:
            return []
        del self._open[id]
        return [Reply(id=id, result=result)]

    def withdraw_all(self) -> list[WithdrawQuery]:
        """The balancer is gone."""
        return [each for id in list(self._open) for each in self.withdraw(id)]

    def fail_all(self, error: RequestError) -> list[Reply]:
        """The ends of all of them; to be followed by `withdraw_all`."""
        return [declined(id, error) for id in self._open]

    def check_integrity(self) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        if {ticket: id for id, ticket in self._open.items()} != self._ids:
            raise RuntimeError("queries and their tickets do not match")


def declined(id: RequestId, error: RequestError) -> Reply:
    """The reply of a query that is not answered, and why."""
    return Reply(id=id, result=Declined(error=to_wire(error)))
