"""What changed since a revision, at the cost of the change and not of the fleet.

The revision grows with every change that others can see. Each agent and each request is listed
under the revision of its last change, so what changed since any revision stands at the end of the
list. It remembers the last `MAX_GONE` agents that left and requests that ended. For older
revisions it has no answer, and the caller takes a whole view.

Invariants: an agent or request is listed once; no entry is newer than the revision.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...shared.inference import AgentId, RequestId

K = TypeVar("K", bound=Hashable)

MAX_GONE = 4096
"""How many agents that left are remembered, and how many requests that ended."""


@dataclass(frozen=True, slots=True)
class Change(Generic[K]):
    """What is new or different (oldest change first), and what is gone."""

    changed: tuple[K, ...]
    gone: tuple[K, ...]


class _Ledger(Generic[K]):
    """The last change of each key."""

    __slots__ = ("_changed", "_complete_since", "_gone", "_max_gone")

    def __init__(self, max_gone: int) -> None:
        self._changed: OrderedDict[K, int] = OrderedDict()
        self._gone: OrderedDict[K, int] = OrderedDict()
        self._complete_since = 0
        self._max_gone = max_gone

    def touch(self, key: K, revision: int) -> None:
        self._gone.pop(key, None)
        self._changed[key] = revision
        self._changed.move_to_end(key)

    def drop(self, key: K, revision: int) -> None:
        self._changed.pop(key, None)
        self._gone[key] = revision
        self._gone.move_to_end(key)
        if len(self._gone) > self._max_gone:
            _, self._complete_since = self._gone.popitem(last=False)

    def since(self, revision: int) -> Change[K] | None:
        if revision < self._complete_since:
            return None
        changed = tuple(_newer(self._changed, revision))[::-1]
        return Change(changed, tuple(_newer(self._gone, revision))[::-1])

    def check_integrity(self, revision: int) -> None:
        for entries in (self._changed, self._gone):
            revisions = list(entries.values())
            if revisions != sorted(revisions) or any(each > revision for each in revisions):
                raise RuntimeError("changes are out of order")
        if self._changed.keys() & self._gone.keys() or len(self._gone) > self._max_gone:
            raise RuntimeError("something is both here and gone, or too much is remembered")


class ChangeLog:
    """The revision, and under which revision each agent and each request changed last."""

    def __init__(self, *, max_gone: int = MAX_GONE) -> None:
        self.revision = 0
        self._agents: _Ledger[AgentId] = _Ledger(max_gone)
        self._requests: _Ledger[RequestId] = _Ledger(max_gone)

    def advance(self) -> int:
        """Something changed that no agent and no request shows."""
        self.revision += 1
        return self.revision

    def agent_changed(self, id: AgentId) -> None:
        """An agent is new or looks different."""
        self._agents.touch(id, self.advance())

    def agent_gone(self, id: AgentId) -> None:
        """An agent left."""
        self._agents.drop(id, self.advance())

    def request_changed(self, id: RequestId) -> None:
        """A request or query is new or looks different."""
        self._requests.touch(id, self.advance())

    def requests_changed(self, ids: Iterable[RequestId]) -> None:
        """Requests look different, all in one change."""
        revision = self.advance()
        for id in ids:
            self._requests.touch(id, revision)

    def request_gone(self, id: RequestId) -> None:
        """A request or query ended."""
        self._requests.drop(id, self.advance())

    def since(self, revision: int) -> tuple[Change[AgentId], Change[RequestId]] | None:
        """Agents and requests that changed after `revision`; `None` if that is too long ago."""
        agents, requests = self._agents.since(revision), self._requests.since(revision)
        if agents is None or requests is None or revision > self.revision:
            return None
        return agents, requests

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._agents.check_integrity(self.revision)
        self._requests.check_integrity(self.revision)


def _newer(entries: OrderedDict[K, int], revision: int) -> Iterator[K]:
    """Keys that changed after `revision`, newest first."""
    for key in reversed(entries):
        if entries[key] <= revision:
            return
        yield key
