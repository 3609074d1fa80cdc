"""The memory of this host, which the engines of all its places share.

A place is where one model is served: an engine, and the one that replaces it. An agent has as many
places as it serves models, and one that is spare.

Invariants: engines together never need more memory than the host has; no two places load at once.
"""

from collections.abc import Iterable
from typing import Protocol

from ..models.model_file import ModelFile


class Tenants(Protocol):
    """The engines of one place."""

    @property
    def files(self) -> Iterable[ModelFile | None]:
        """What each engine has in memory; `None` where that is not known."""
        ...

    @property
    def is_loading(self) -> bool:
        """Whether one of them loads its model for the first time."""
        ...


class Room:
    """`memory` in bytes is what all engines may use together; 0: unknown, so one at a time."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self._places: list[Tenants] = []

    def enter(self, place: Tenants) -> None:
        """One more place."""
        self._places.append(place)

    def leave(self, place: Tenants) -> None:
        """A place is given up; it has no engines."""
        self._places.remove(place)

    def is_loading_beside(self, place: Tenants) -> bool:
        """Whether another place loads a model."""
        return any(each.is_loading for each in self._others(place))

    def beside(self, place: Tenants) -> list[ModelFile | None]:
        """What the engines of the other places have in memory."""
        return [file for each in self._others(place) for file in each.files]

    def holds(self, file: ModelFile, beside: Iterable[ModelFile | None]) -> bool:
        """Whether memory holds it together with what is there. What is alone always fits."""
        files = [file, *beside]
        needs = [None if each is None else each.needed for each in files]
        known = [each for each in needs if each is not None]
        return len(files) == 1 or (len(known) == len(files) and sum(known) <= self.memory)

    def _others(self, place: Tenants) -> Iterable[Tenants]:
        return (each for each in self._places if each is not place)
