"""A model's files on this host, and its adapters, which can be added and removed at run time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ...shared.models.assignments import Assignment, DesiredAdapter, MemoryPart
from ...shared.reports.model_info import ModelInfo
from .port import OtherFile


@dataclass(frozen=True, slots=True)
class AdapterOnHost:
    """The file of an adapter's source. A loaded adapter takes about `bytes` of memory."""

    source: str
    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model's file on this host, with its memory needs in bytes.

    `needed` is the memory that the loaded model takes. `least` is the memory with the smallest KV
    cache allowed, if the cache size can be chosen. `claims` is the free memory that loading
    requires per device; empty if unknown. `shorter` lists shorter contexts in tokens with the
    memory they need, the longest first. `others` are other quantisations of the model, whose
    weights would replace `bytes`. `info` describes the model from its header, for balancers, while
    the model is being loaded.

    `projector`, a fetched `draft_model` and `adapters` are the assignment's other files.
    `adapters` are in the assignment's order and counted in `needed`.
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
        """Return the longest shorter context that needs at most `memory` bytes."""
        beside = bytes_of(self.adapters)
        return next((size for size, needed in self.shorter if needed + beside <= memory), None)

    def other_within(self, memory: int) -> OtherFile | None:
        """Return the largest other quantisation whose model needs at most `memory` bytes."""
        needed = self.needed if self.least is None else self.least
        if needed is None:
            return None
        fitting = [each for each in self.others if needed - self.bytes + each.bytes <= memory]
        return max(fitting, key=lambda other: other.bytes, default=None)

    def with_adapters(self, adapters: Sequence[AdapterOnHost]) -> "ModelFile":
        """Return the file with these adapters in place of its own."""
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
    """Add `more` bytes of adapters to the largest part: adapters are stored with layers."""
    if not parts or not more:
        return parts
    largest = max(parts, key=lambda part: part.bytes)
    return tuple(
        replace(part, bytes=max(0, part.bytes + more)) if part is largest else part
        for part in parts
    )


def bytes_of(adapters: Iterable[AdapterOnHost]) -> int:
    """Return the size of all adapter files; a file that occurs twice counts once."""
    return sum(each.bytes for each in set(adapters))


class AdaptersHere:
    """The adapters that an engine has or will have, by source."""

    def __init__(self, adapters: Iterable[AdapterOnHost]) -> None:
        self._files = {each.source: each for each in adapters}

    @property
    def all(self) -> tuple[AdapterOnHost, ...]:
        return tuple(self._files.values())

    def missing(self, assignment: Assignment) -> tuple[DesiredAdapter, ...]:
        """Return the adapters of `assignment` that are missing here."""
        return tuple(each for each in assignment.adapters or () if each.source not in self._files)

    def of(self, assignment: Assignment) -> tuple[AdapterOnHost, ...]:
        """Return the files of all adapters of `assignment`, in its order. No file may be
        missing.
        """
        return tuple(self._files[each.source] for each in assignment.adapters or ())

    def add(self, adapters: Iterable[AdapterOnHost]) -> None:
        """Add fetched files."""
        self._files.update({each.source: each for each in adapters})

    def keep_only(self, *assignments: Assignment) -> None:
        """Remove adapters that occur in none of `assignments`."""
        sources = {each.source for one in assignments for each in one.adapters or ()}
        self._files = {key: each for key, each in self._files.items() if key in sources}
