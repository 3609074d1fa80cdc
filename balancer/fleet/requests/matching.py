"""Requests that wait, by what they want, and agents with free slots, by what they are.

Who waits for `None` takes any agent, who waits for a name any of that model, and who waits for an
`Engine` only one of the same fingerprint. Who waits for a `Warm` one takes that agent alone. Every
change costs O(log n).
"""

from collections.abc import Container, Iterable, Iterator

from ....shared.inference import RequestId
from ..decisions import LinkId
from ..priority_queue import Groups
from .routing import Wanted, Warm, model_of


class Waiting:
    """Waiting requests, lowest rank first."""

    __slots__ = ("_groups", "_wanted")

    def __init__(self) -> None:
        self._groups: Groups[Wanted, RequestId, float] = Groups()
        self._wanted: dict[RequestId, Wanted] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def __contains__(self, id: object) -> bool:
        return id in self._wanted

    def put(self, id: RequestId, wanted: Wanted, rank: float) -> None:
        """Add a request, or give a waiting one another rank."""
        self._wanted[id] = wanted
        self._groups.set(wanted, id, rank)

    def remove(self, id: RequestId) -> None:
        """Remove a request. Raises `KeyError` if it does not wait."""
        self._groups.remove(self._wanted.pop(id), id)

    def of(self, model: str) -> list[RequestId]:
        """The requests for any agent of exactly this model."""
        return list(self._groups.keys(model))

    def first(self, keys: Iterable[Wanted]) -> RequestId | None:
        """The next request for an agent that takes those of `keys`."""
        heads = [head for key in keys if (head := self._groups.first(key)) is not None]
        return min(heads)[1] if heads else None

    def models(self) -> Iterator[tuple[str | None, int, RequestId]]:
        """Models that are waited for, the number of those who do, and the first of them.

        A model comes once for those that any of its agents may take, and once for each engine.
        """
        for wanted in self._groups:
            if (first := self._groups.first(wanted)) is not None:
                yield model_of(wanted), self._groups.size(wanted), first[1]

    def stranded(self, served: Container[Wanted]) -> list[RequestId]:
        """Requests that want what is not in `served`; an agent that is waited for serves."""
        groups = self._groups
        wanted = (key for key in groups if not isinstance(key, Warm))
        return [id for key in wanted if key not in served for id in groups.keys(key)]

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._groups.check_integrity()
        if {id: key for key in self._groups for id in self._groups.keys(key)} != self._wanted:
            raise RuntimeError("somebody waits in the wrong place")


class Free:
    """Agents that can take more, lowest load first; of several, the one that waited longest."""

    __slots__ = ("_groups", "_keys")

    def __init__(self) -> None:
        self._groups: Groups[Wanted, LinkId, tuple[float, int]] = Groups()
        self._keys: dict[LinkId, tuple[Wanted, ...]] = {}

    def __contains__(self, link: object) -> bool:
        return link in self._keys

    def put(self, link: LinkId, keys: tuple[Wanted, ...], load: float, turn: int) -> None:
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

    def first(self, wanted: Wanted) -> LinkId | None:
        """The agent that gets the next request that wants this."""
        first = self._groups.first(wanted)
        return first[1] if first else None

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._groups.check_integrity()
        for link, keys in self._keys.items():
            if any(link not in self._groups.keys(key) for key in keys):
                raise RuntimeError(f"{link} is misplaced")
