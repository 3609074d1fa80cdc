"""A model's files on this host, and the adapters beside it, which come and go meanwhile."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ...shared.models.assignments import Assignment, MemoryPart, WishedAdapter
from ...shared.reports.model_info import ModelInfo
from .port import OtherFile


@dataclass(frozen=True, slots=True)
class AdapterOnHost:
    """The file of an adapter's source. It takes about `bytes` of memory when it is loaded."""

    source: str
    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model's file on this host. `needed` is the memory in bytes that it takes when loaded, and
    `least` what it takes with the fewest cells that may be chosen, where some are. `claims` is what
    it wants to find free of each memory; none where that is not known.
    `shorter` are contexts in tokens that are shorter than the one it is to have, the longest first,
    and what it would take with them. `others` are the same model in other quantisations, whose
    weights would take the place of `bytes`.
    `info` is what its header says, for balancers, while it is being loaded. `projector`, a fetched
    `draft_model` and `adapters` are the files that the assignment has beside it, the latter in the
    assignment's order and counted in `needed`.
    """

    path: str
    needed: int | None = None
    info: ModelInfo | None = None
    projector: str | None = None
    adapters: tuple[AdapterOnHost, ...] = ()
    draft_model: str | None = None
    shorter: tuple[tuple[int, int], ...] = ()
    least: int | None = None
    bytes: int = 0
    others: tuple[OtherFile, ...] = field(default=(), compare=False)
    claims: tuple[MemoryPart, ...] = ()

    @property
    def alone(self) -> "ModelFile":
        """The file without adapters."""
        return self.with_adapters(())

    def context_within(self, memory: int) -> int | None:
        """The longest of the shorter contexts with which it takes no more than `memory` bytes."""
        beside = bytes_of(self.adapters)
        return next((size for size, needed in self.shorter if needed + beside <= memory), None)

    def other_within(self, memory: int) -> OtherFile | None:
        """The largest other quantisation with which it takes no more than `memory` bytes."""
        needed = self.needed if self.least is None else self.least
        if needed is None:
            return None
        fitting = [each for each in self.others if needed - self.bytes + each.bytes <= memory]
        return max(fitting, key=lambda other: other.bytes, default=None)

    def with_adapters(self, adapters: Sequence[AdapterOnHost]) -> "ModelFile":
        """The file with these adapters in place of its own."""
        more = bytes_of(adapters) - bytes_of(self.adapters)
        needed = None if self.needed is None else self.needed + more
        least = None if self.least is None else self.least + more
        return replace(
            self,
            adapters=tuple(adapters),
            needed=needed,
            least=least,
            claims=_with_more(self.claims, more),
        )


def _with_more(parts: tuple[MemoryPart, ...], more: int) -> tuple[MemoryPart, ...]:
    """Adapters lie where the layers are: `more` bytes of them count with the largest part."""
    if not parts or not more:
        return parts
    largest = max(parts, key=lambda part: part.bytes)
    return tuple(
        replace(part, bytes=max(0, part.bytes + more)) if part is largest else part
        for part in parts
    )


def bytes_of(adapters: Iterable[AdapterOnHost]) -> int:
    """The size of all their files: the same one counts once."""
    return sum(each.bytes for each in set(adapters))


class AdaptersHere:
    """The adapters that an engine has or is to have, by source."""

    def __init__(self, adapters: Iterable[AdapterOnHost]) -> None:
        self._files = {each.source: each for each in adapters}

    @property
    def all(self) -> tuple[AdapterOnHost, ...]:
        return tuple(self._files.values())

    def missing(self, assignment: Assignment) -> tuple[WishedAdapter, ...]:
        """Those that `assignment` has besides."""
        return tuple(each for each in assignment.adapters or () if each.source not in self._files)

    def of(self, assignment: Assignment) -> tuple[AdapterOnHost, ...]:
        """The files of all adapters of `assignment`, none of which is missing, in its order."""
        return tuple(self._files[each.source] for each in assignment.adapters or ())

    def add(self, adapters: Iterable[AdapterOnHost]) -> None:
        """Add files that were fetched."""
        self._files.update({each.source: each for each in adapters})

    def keep_only(self, *assignments: Assignment) -> None:
        """Forget what none of `assignments` has."""
        sources = {each.source for one in assignments for each in one.adapters or ()}
        self._files = {key: each for key, each in self._files.items() if key in sources}
