"""The memory of this host, which the engines of all its places share.

A place is where one model is served: an engine, and the one that replaces it. An agent has as many
places as it serves models, and one that is spare.

Memory is accounted for each device and for the host, by what engines hold once they are loaded, and
before by what they want to find free. Where that is not known of one of them, all memory counts as
one, by the estimates of their files.

Invariants: engines together never need more memory than the host has; no two places load at once.
"""

from collections.abc import Iterable, Mapping
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
    """`memory` in bytes is what all engines may use together; 0: unknown, so one at a time.

    `parts` are the bytes of each device, and as `CPU` those of the host.
    """

    def __init__(self, memory: int, parts: Mapping[str, int] | None = None) -> None:
        self.memory = memory
        self._parts = parts or {}
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

    def holds(
        self,
        file: ModelFile,
        beside: Iterable[ModelFile | None],
        *,
        takes_what_is_left: bool = False,
    ) -> bool:
        """Whether memory holds it together with what is there. What is alone always fits.

        One that `takes_what_is_left` of devices does not have to find room on each of them.
        """
        files = [file, *beside]
        known = [each for each in files if each is not None and each.needed is not None]
        if len(files) == 1:
            return True
        if len(known) < len(files):
            return False
        if self._parts and not takes_what_is_left and all(each.claims for each in known):
            wanted = (part.device for part in file.claims if part.bytes)
            return all(_bytes_on(name, known) <= self._parts.get(name, 0) for name in wanted)
        return sum(each.needed or 0 for each in known) <= self.memory

    def _others(self, place: Tenants) -> Iterable[Tenants]:
        return (each for each in self._places if each is not place)


def _bytes_on(device: str, files: Iterable[ModelFile]) -> int:
    return sum(part.bytes for file in files for part in file.claims if part.device == device)
