"""Reads of agents' logs under way, by the link that each was sent over.

Invariant: none is here whose link is gone. How many there are is bounded by who asks.
"""

from ....shared.inference import RequestId
from ..decisions import LinkId


class LogReaders:
    """Each from `asked` until it is answered or given up, or its link has gone."""

    def __init__(self) -> None:
        self._links: dict[RequestId, LinkId] = {}

    def __len__(self) -> int:
        return len(self._links)

    def asked(self, id: RequestId, link: LinkId) -> None:
        """An agent was asked."""
        self._links[id] = link

    def ended(self, id: RequestId) -> LinkId | None:
        """It is answered or given up; the link that it was sent over, if it was under way."""
        return self._links.pop(id, None)

    def left(self, link: LinkId) -> tuple[RequestId, ...]:
        """A link shows no log any more; what was under way there, which ends."""
        ids = tuple(id for id, each in self._links.items() if each == link)
        for id in ids:
            del self._links[id]
        return ids
