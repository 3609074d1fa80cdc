"""Requests that wait, each with its place.

Of a model's requests, those before one are those that came earlier and that the same agents could
start: for the same model, one of its engines, or for any.
"""

from bisect import bisect_left, insort
from collections.abc import Collection

from ....shared.inference import RequestId
from .matching import Waiting
from .routing import Engine, Wanted, Warm


class Line(Waiting):
    """A place costs O(log n) for each model that counts.

    The ranks of each model stand in a list, in order: to insert and to delete moves what is behind,
    which takes a few microseconds for ten thousand.
    """

    __slots__ = ("_by_wanted", "_engines", "_ranks")

    def __init__(self) -> None:
        super().__init__()
        self._ranks: dict[RequestId, float] = {}
        self._by_wanted: dict[Wanted, list[float]] = {}
        self._engines: dict[str, set[Engine]] = {}
        """Those that somebody waits for, by model."""

    def put(self, id: RequestId, wanted: Wanted, rank: float) -> None:
        """Add a request that does not wait yet. No other has its rank."""
        if id in self._ranks:
            raise ValueError(f"request {id} waits already")
        super().put(id, wanted, rank)
        self._ranks[id] = rank
        insort(self._by_wanted.setdefault(wanted, []), rank)
        if isinstance(wanted, Engine):
            self._engines.setdefault(wanted.model, set()).add(wanted)

    def remove(self, id: RequestId) -> None:
        """Remove a request. Raises `KeyError` if it does not wait."""
        wanted = self._wanted[id]
        super().remove(id)
        ranks = self._by_wanted[wanted]
        del ranks[bisect_left(ranks, self._ranks.pop(id))]
        if not ranks:
            self._nobody_wants(wanted)

    def _nobody_wants(self, wanted: Wanted) -> None:
        del self._by_wanted[wanted]
        if isinstance(wanted, Engine):
            self._engines[wanted.model].remove(wanted)
            if not self._engines[wanted.model]:
                del self._engines[wanted.model]

    def place(self, id: RequestId, served: Collection[Wanted]) -> int:
        """Its place, from 1. A request for any model counts those for what is in `served`."""
        wanted, rank = self._wanted[id], self._ranks[id]
        return 1 + self._before(wanted, rank, served)

    def next_place(self, wanted: Wanted, served: Collection[Wanted]) -> int:
        """The place that a newcomer would get."""
        return 1 + self._before(wanted, float("inf"), served)

    def _before(self, wanted: Wanted, rank: float, served: Collection[Wanted]) -> int:
        rivals = self._rivals(wanted, served)
        return sum(bisect_left(self._by_wanted.get(each, ()), rank) for each in rivals)

    def _rivals(self, wanted: Wanted, served: Collection[Wanted]) -> set[Wanted]:
        """What those want who could start on the same agents."""
        if wanted is None:
            return {None, *self._shared(served)}
        if isinstance(wanted, Engine | Warm):
            return {None, wanted.model, wanted}
        return {None, wanted, *self._engines.get(wanted, ())}

    def _shared(self, served: Collection[Wanted]) -> list[Wanted]:
        """What of `served` somebody waits for."""
        few, many = sorted((served, self._by_wanted), key=len)
        return [wanted for wanted in few if wanted in many]

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        super().check_integrity()
        expected: dict[Wanted, list[float]] = {}
        for id, rank in self._ranks.items():
            expected.setdefault(self._wanted[id], []).append(rank)
        if self._ranks.keys() != self._wanted.keys():
            raise RuntimeError("somebody waits without a place")
        if {wanted: sorted(ranks) for wanted, ranks in expected.items()} != self._by_wanted:
            raise RuntimeError("places are out of order")
        engines = {wanted for wanted in expected if isinstance(wanted, Engine)}
        if engines != {engine for each in self._engines.values() for engine in each}:
            raise RuntimeError("an engine is waited for in vain")
