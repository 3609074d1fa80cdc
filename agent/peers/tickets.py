"""Who may fetch a prefix: each ticket once, and only for a while.

Invariant: at most `MAX_TICKETS` are remembered, those that came last.
"""

from collections import OrderedDict

MAX_TICKETS = 1024


class Tickets:
    """Times are seconds of one clock."""

    def __init__(self) -> None:
        self._until: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def add(self, ticket: str, until: float) -> None:
        """A balancer has given this ticket to an agent."""
        self._until[ticket] = until
        if len(self._until) > MAX_TICKETS:
            self._until.popitem(last=False)

    def take(self, ticket: str, now: float) -> bool:
        """Whether it is good; it is not any more."""
        return now < self._until.pop(ticket, now)
