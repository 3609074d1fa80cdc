"""Requests that wait, each with its place.

Of a model's requests, those before one are those that came earlier and that the same agents could
start: for the same model, or for any.
"""

from bisect import bisect_left, insort
from collections.abc import Collection

from ....shared.inference import RequestId
from .matching import Waiting


class Line(Waiting):
    """A place costs O(log n) for each model that counts.

    The ranks of each model stand in a list, in order: to insert and to delete moves what is behind,
    which takes a few microseconds for ten thousand.
    """

    __slots__ = ("_by_model", "_ranks")

    def __init__(self) -> None:
        super().__init__()
        self._ranks: dict[RequestId, float] = {}
        self._by_model: dict[str | None, list[float]] = {}

    def put(self, id: RequestId, model: str | None, rank: float) -> None:
        """Add a request that does not wait yet. No other has its rank."""
        if id in self._ranks:
            raise ValueError(f"request {id} waits already")
        super().put(id, model, rank)
        self._ranks[id] = rank
        insort(self._by_model.setdefault(model, []), rank)

    def remove(self, id: RequestId) -> None:
        """Remove a request. Raises `KeyError` if it does not wait."""
        model = self._models[id]
        super().remove(id)
        ranks = self._by_model[model]
        del ranks[bisect_left(ranks, self._ranks.pop(id))]
        if not ranks:
            del self._by_model[model]

    def place(self, id: RequestId, served: Collection[str | None]) -> int:
        """Its place, from 1. A request for any model counts those for the models in `served`."""
        model, rank = self._models[id], self._ranks[id]
        return 1 + self._before(model, rank, served)

    def next_place(self, model: str | None, served: Collection[str | None]) -> int:
        """The place that a newcomer would get."""
        return 1 + self._before(model, float("inf"), served)

    def _before(self, model: str | None, rank: float, served: Collection[str | None]) -> int:
        rivals = {None, model} if model is not None else {None, *self._shared(served)}
        return sum(bisect_left(self._by_model.get(each, ()), rank) for each in rivals)

    def _shared(self, served: Collection[str | None]) -> list[str | None]:
        """Models in `served` that somebody waits for."""
        few, many = sorted((served, self._by_model), key=len)
        return [model for model in few if model in many]

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        super().check_integrity()
        expected: dict[str | None, list[float]] = {}
        for id, rank in self._ranks.items():
            expected.setdefault(self._models[id], []).append(rank)
        if self._ranks.keys() != self._models.keys():
            raise RuntimeError("somebody waits without a place")
        if {model: sorted(ranks) for model, ranks in expected.items()} != self._by_model:
            raise RuntimeError("places are out of order")
