"""The memory of this host, which the engines of all its places share.

A place serves one model: it has an engine, and at times the engine that replaces it. An agent has
one place per model that it serves, and a spare place.

Memory is counted per device and for the host: the memory that loaded engines hold, and the memory
that must be free to load further engines. If one of these is unknown, all memory counts as one, by
the estimates of the files.

Invariants: engines together never need more memory than the host has; no two places load at once.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from ..models.model_file import ModelFile


class Tenants(Protocol):
    """The engines of one place."""

    @property
    def files(self) -> Iterable[ModelFile | None]:
        """The files that engines have in memory; `None` if unknown."""
        ...

    @property
    def is_loading(self) -> bool:
        """Return whether an engine loads its model for the first time."""
        ...


class Room:
    """The host's memory. `memory` is the total in bytes.

    If the total is 0, it is unknown, and one engine may be loaded at a time. `parts` has the bytes
    of each device, and of the host as `CPU`.
    """

    def __init__(self, memory: int, parts: Mapping[str, int] | None = None) -> None:
        self.memory = memory
        self._parts = parts or {}
        self._places: list[Tenants] = []

    def enter(self, place: Tenants) -> None:
        """Add a place."""
        self._places.append(place)

    def leave(self, place: Tenants) -> None:
        """Remove a place, which has no engines."""
        self._places.remove(place)

    def is_loading_beside(self, place: Tenants) -> bool:
        """Return whether another place loads a model."""
        return any(each.is_loading for each in self._others(place))

    def beside(self, place: Tenants) -> list[ModelFile | None]:
        """Return the files that engines of the other places have in memory."""
        return [file for each in self._others(place) for file in each.files]

    def holds(
        self,
        file: ModelFile,
        beside: Iterable[ModelFile | None],
        *,
        takes_what_is_left: bool = False,
    ) -> bool:
        """Return whether memory suffices for `file` and `beside`. A file alone always fits.

        With `takes_what_is_left`, only the total counts, not each device.
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
