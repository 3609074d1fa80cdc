"""Requests that wait, by model, and agents with free slots, by model.

Both know models by name; who waits for `None` takes any. Every change costs O(log n).
"""

from collections.abc import Container, Iterator

from ....shared.inference import RequestId
from ..decisions import LinkId
from ..priority_queue import Groups


class Waiting:
    """Waiting requests, lowest rank first."""

    __slots__ = ("_groups", "_models")

    def __init__(self) -> None:
        self._groups: Groups[RequestId, float] = Groups()
        self._models: dict[RequestId, str | None] = {}

    def __len__(self) -> int:
        return len(self._models)

    def __contains__(self, id: object) -> bool:
        return id in self._models

    def put(self, id: RequestId, model: str | None, rank: float) -> None:
        """Add a request, or give a waiting one another rank."""
        self._models[id] = model
        self._groups.set(model, id, rank)

    def remove(self, id: RequestId) -> None:
        """Remove a request. Raises `KeyError` if it does not wait."""
        self._groups.remove(self._models.pop(id), id)

    def of(self, model: str) -> list[RequestId]:
        """The requests for exactly this model."""
        return list(self._groups.keys(model))

    def first(self, model: str) -> RequestId | None:
        """The next request for an agent that serves `model`."""
        heads = [head for key in (None, model) if (head := self._groups.first(key)) is not None]
        return min(heads)[1] if heads else None

    def models(self) -> Iterator[tuple[str | None, int, RequestId]]:
        """Each model that is waited for, the number of those who do, and the first of them."""
        for model in self._groups:
            if (first := self._groups.first(model)) is not None:
                yield model, self._groups.size(model), first[1]

    def stranded(self, served: Container[str | None]) -> list[RequestId]:
        """Requests whose model is not in `served`; requests for any model count as `None`."""
        groups = self._groups
        return [id for key in groups if key not in served for id in groups.keys(key)]

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._groups.check_integrity()
        if {id: key for key in self._groups for id in self._groups.keys(key)} != self._models:
            raise RuntimeError("somebody waits in the wrong place")


class Free:
    """Agents that can take more, lowest load first; of several, the one that waited longest."""

    __slots__ = ("_groups", "_models")

    def __init__(self) -> None:
        self._groups: Groups[LinkId, tuple[float, int]] = Groups()
        self._models: dict[LinkId, str] = {}

    def __contains__(self, link: object) -> bool:
        return link in self._models

    def put(self, link: LinkId, model: str, load: float, turn: int) -> None:
        """Add or update an agent that serves `model`.

        `turn` is greatest for the agent that got a request last.
        """
        if self._models.get(link, model) != model:
            self.discard(link)
        self._models[link] = model
        for key in (None, model):
            self._groups.set(key, link, (load, turn))

    def discard(self, link: LinkId) -> None:
        """Remove an agent, if it is here."""
        if (model := self._models.pop(link, None)) is not None:
            for key in (None, model):
                self._groups.remove(key, link)

    def first(self, model: str | None) -> LinkId | None:
        """The agent that gets the next request for that model."""
        first = self._groups.first(model)
        return first[1] if first else None

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._groups.check_integrity()
        for link, model in self._models.items():
            if any(link not in self._groups.keys(key) for key in (None, model)):
                raise RuntimeError(f"{link} is misplaced")
