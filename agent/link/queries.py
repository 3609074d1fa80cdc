"""The queries of one balancer to this agent; queries take no slot.

Invariant: each query is answered at most once. A query is not answered after its withdrawal or
after its connection was lost.
"""

from collections.abc import Iterator

from ...shared.errors import QueueFull, RequestError, to_wire
from ...shared.inference import RequestId
from ...shared.messages import Ask, Reply
from ...shared.queries import Declined, Result
from ..generation.port import QueryId
from .decisions import AnswerQuery, WithdrawQuery

MAX_QUERIES = 256
"""Maximum queries of one balancer at once; a balancer asks far fewer."""


class OpenQueries:
    """The queries of one balancer that are not answered yet.

    `numbers` are shared with the agent's other sessions.
    """

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._ids: dict[QueryId, RequestId] = {}
        self._open: dict[RequestId, QueryId] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, id: object) -> bool:
        return id in self._open

    def accept(self, ask: Ask) -> AnswerQuery | Reply:
        """Accept a new query, or decline it if too many are open."""
        if len(self._open) >= MAX_QUERIES:
            return declined(ask.id, QueueFull(f"the agent answers {MAX_QUERIES} queries already"))
        query = QueryId(next(self._numbers))
        self._open[ask.id] = query
        self._ids[query] = ask.id
        return AnswerQuery(query, ask.query)

    def withdraw(self, id: RequestId) -> list[WithdrawQuery]:
        """Withdraw a query that the balancer cancelled."""
        if id not in self._open:
            return []
        query = self._open.pop(id)
        del self._ids[query]
        return [WithdrawQuery(query)]

    def answered(self, query: QueryId, result: Result) -> list[Reply]:
        """Return the reply with `result`; no reply if the query was withdrawn."""
        if (id := self._ids.pop(query, None)) is None:
            return []
        del self._open[id]
        return [Reply(id=id, result=result)]

    def withdraw_all(self) -> list[WithdrawQuery]:
        """Withdraw all queries, because the connection is lost."""
        return [each for id in list(self._open) for each in self.withdraw(id)]

    def fail_all(self, error: RequestError) -> list[Reply]:
        """Return replies that end all queries with `error`; call `withdraw_all` after this."""
        return [declined(id, error) for id in self._open]

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; for tests."""
        if {query: id for id, query in self._open.items()} != self._ids:
            raise RuntimeError("queries and their ids do not match")


def declined(id: RequestId, error: RequestError) -> Reply:
    """Return the reply that declines a query with `error`."""
    return Reply(id=id, result=Declined(error=to_wire(error)))
