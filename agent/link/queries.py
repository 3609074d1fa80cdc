"""The queries that one balancer has put to this agent, which take no slot.

Invariant: each is answered at most once, and not after it was withdrawn or its connection was lost.
"""

from collections.abc import Iterator

from ...shared.errors import QueueFull, RequestError, to_wire
from ...shared.inference import RequestId
from ...shared.messages import Ask, Reply
from ...shared.queries import Declined, Result
from ..engine.sequence import SequenceId
from .decisions import Consult, Dismiss

MAX_QUERIES = 256
"""Most queries of one balancer at once; a balancer asks for far fewer."""


class Queries:
    """`numbers` are shared with the agent's other sessions."""

    def __init__(self, numbers: Iterator[SequenceId]) -> None:
        self._numbers = numbers
        self._names: dict[SequenceId, RequestId] = {}
        self._open: dict[RequestId, SequenceId] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, id: object) -> bool:
        return id in self._open

    def ask(self, ask: Ask) -> Consult | Reply:
        """A query that is not here yet."""
        if len(self._open) >= MAX_QUERIES:
            return declined(ask.id, QueueFull(f"the agent answers {MAX_QUERIES} queries already"))
        number = next(self._numbers)
        self._open[ask.id] = number
        self._names[number] = ask.id
        return Consult(number, ask.query)

    def withdraw(self, id: RequestId) -> list[Dismiss]:
        """Nobody waits for it any more."""
        if id not in self._open:
            return []
        number = self._open.pop(id)
        del self._names[number]
        return [Dismiss(number)]

    def answered(self, number: SequenceId, result: Result) -> list[Reply]:
        """There is a result; nothing comes of one that nobody waits for."""
        if (id := self._names.pop(number, None)) is None:
            return []
        del self._open[id]
        return [Reply(id=id, result=result)]

    def forget_all(self) -> list[Dismiss]:
        """The balancer is gone."""
        return [each for id in list(self._open) for each in self.withdraw(id)]

    def fail_all(self, error: RequestError) -> list[Reply]:
        """The ends of all of them; to be followed by `forget_all`."""
        return [declined(id, error) for id in self._open]

    def check_integrity(self) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        if {number: id for id, number in self._open.items()} != self._names:
            raise RuntimeError("queries and their numbers do not match")


def declined(id: RequestId, error: RequestError) -> Reply:
    """There is no answer, and why."""
    return Reply(id=id, result=Declined(error=to_wire(error)))
