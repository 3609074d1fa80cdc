"""Requests that wait, by their queues, and agents with free slots, by the queues they serve.

A request that waits for `None` takes any agent, one that waits for a name any of that model, and
one that waits for an `Engine` only one of the same fingerprint. One that waits for a `Warm` agent
takes that agent alone. Every change costs O(log n).
"""

from collections.abc import Container, Iterable, Iterator

from ....shared.inference import RequestId
from ..decisions import LinkId
from ..priority_queue import Groups
from .eligibility import QueueKey, Warm, agents_of, model_of


class Queues:
    """The queues of waiting requests, lowest rank first."""

    __slots__ = ("_groups", "_keys")

    def __init__(self) -> None:
        self._groups: Groups[QueueKey, RequestId, float] = Groups()
        self._keys: dict[RequestId, QueueKey] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, id: object) -> bool:
        return id in self._keys

    def put(self, id: RequestId, key: QueueKey, rank: float) -> None:
        """Add a request, or give a waiting one another rank."""
        self._keys[id] = key
        self._groups.set(key, id, rank)

    def remove(self, id: RequestId) -> None:
        """Remove a request. Raises `KeyError` if it does not wait."""
        self._groups.remove(self._keys.pop(id), id)

    def of(self, model: str) -> list[RequestId]:
        """The requests for any agent of exactly this model."""
        return list(self._groups.keys(model))

    def first(self, keys: Iterable[QueueKey]) -> RequestId | None:
        """The next request for an agent that takes those of `keys`."""
        heads = [head for key in keys if (head := self._groups.first(key)) is not None]
        return min(heads)[1] if heads else None

    def models(self) -> Iterator[tuple[str | None, int, RequestId]]:
        """Models that are waited for, the number of requests that do, and the first of them.

        A model comes once for those that any of its agents may take, and once for each engine.
        """
        for key in self._groups:
            if (first := self._groups.first(key)) is not None:
                yield model_of(key), self._groups.size(key), first[1]

    def stranded(self, served: Container[QueueKey]) -> list[RequestId]:
        """Requests of queues that are not in `served`; an agent that is waited for serves."""
        groups = self._groups
        queues = (key for key in groups if not isinstance(key, Warm))
        return [id for key in queues if agents_of(key) not in served for id in groups.keys(key)]

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._groups.check_integrity()
        if {id: key for key in self._groups for id in self._groups.keys(key)} != self._keys:
            raise RuntimeError("a request waits in the wrong place")


class Free:
    """Agents that can take more, lowest load first; of several, the one that waited longest."""

    __slots__ = ("_groups", "_keys")

    def __init__(self) -> None:
        self._groups: Groups[QueueKey, LinkId, tuple[float, int]] = Groups()
        self._keys: dict[LinkId, tuple[QueueKey, ...]] = {}

    def __contains__(self, link: object) -> bool:
        return link in self._keys

    def put(self, link: LinkId, keys: tuple[QueueKey, ...], load: float, turn: int) -> None:
        """Add or update an agent that takes requests of `keys`.

        `turn` is greatest for the agent that got a request last.
        """
        if self._keys.get(link, keys) != keys:
            self.discard(link)
        self._keys[link] = keys
        for key in keys:
            self._groups.set(key, link, (load, turn))

    def discard(self, link: LinkId) -> None:
        """Remove an agent, if it is here."""
        for key in self._keys.pop(link, ()):
            self._groups.remove(key, link)

    def first(self, key: QueueKey) -> LinkId | None:
        """The agent that gets the next request of this queue."""
        first = self._groups.first(key)
        return first[1] if first else None

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._groups.check_integrity()
        for link, keys in self._keys.items():
            if any(link not in self._groups.keys(key) for key in keys):
                raise RuntimeError(f"{link} is misplaced")
