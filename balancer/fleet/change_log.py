"""Finds the agents that changed after a revision, at a cost of their number.

Each visible change of the fleet increases the revision. Each agent is listed under the revision of
its last change, so recent changes are at the end of the list. A separate list has the agents that
only sent tokens, because most agents send tokens all the time.

The log remembers the last `MAX_GONE` agents that left. It has no answer for older revisions, and
the reader then takes a whole view. Requests are not listed, because they change with each token.

Invariants: an agent is in each list at most once; no entry is newer than the revision.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...shared.inference import AgentId

K = TypeVar("K", bound=Hashable)

MAX_GONE = 4096
"""The maximum number of remembered agents that left."""


@dataclass(frozen=True, slots=True)
class Change(Generic[K]):
    """The new and changed agents, oldest change first, and the ids of agents that left."""

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
    """The revision, and the revision of each agent's last change."""

    def __init__(self, *, max_gone: int = MAX_GONE) -> None:
        self.revision = 0
        self._agents: _Ledger[AgentId] = _Ledger(max_gone)
        self._generated: OrderedDict[AgentId, int] = OrderedDict()

    def advance(self) -> int:
        """Increase the revision for a change that affects no agent, such as a request's change."""
        self.revision += 1
        return self.revision

    def agent_changed(self, id: AgentId) -> None:
        """Record that an agent is new or has visibly changed."""
        self._agents.touch(id, self.advance())

    def agent_generated(self, id: AgentId) -> None:
        """Record that an agent sent tokens and has not changed otherwise."""
        self._generated[id] = self.advance()
        self._generated.move_to_end(id)

    def agent_gone(self, id: AgentId) -> None:
        """Record that an agent left."""
        self._agents.drop(id, self.advance())
        self._generated.pop(id, None)

    def generated_since(self, revision: int) -> Iterator[AgentId]:
        """Yield the agents that sent tokens after `revision`, latest first."""
        return _newer(self._generated, revision)

    def since(self, revision: int) -> Change[AgentId] | None:
        """Return the agents that changed after `revision`; `None` if the revision is too old."""
        return None if revision > self.revision else self._agents.since(revision)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        self._agents.check_integrity(self.revision)


def _newer(entries: OrderedDict[K, int], revision: int) -> Iterator[K]:
    """Yield the keys that changed after `revision`, newest first."""
    for key in reversed(entries):
        if entries[key] <= revision:
            return
        yield key
