"""All files of an assignment, fetched one after the other: model, projector and adapters.

They are leased together: whoever gets them holds one lease for all.
"""

from contextlib import ExitStack
from dataclasses import dataclass

from ...shared.models.assignments import Assignment
from .port import FetchedModel, FetchError, ModelFiles, OnProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFiles:
    """A `Lease` of all files. `adapters` are in the order of the assignment's."""

    model: FetchedModel
    projector: FetchedModel | None = None
    adapters: tuple[FetchedModel, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of all of them together."""
        return sum(each.bytes for each in self._all)

    @property
    def projector_path(self) -> str | None:
        return None if self.projector is None else str(self.projector.path)

    @property
    def adapter_paths(self) -> tuple[str, ...]:
        return tuple(str(each.path) for each in self.adapters)

    def release(self) -> None:
        for each in self._all:
            each.lease.release()

    @property
    def _all(self) -> tuple[FetchedModel, ...]:
        beside = () if self.projector is None else (self.projector,)
        return (self.model, *beside, *self.adapters)


async def fetch_all(
    files: ModelFiles, assignment: Assignment, on_progress: OnProgress
) -> FetchedFiles:
    """Raises `FetchError` that says which file is meant; then nothing stays leased."""
    with ExitStack() as held:

        async def fetch(source: str, called: str, sha256: str | None = None) -> FetchedModel:
            try:
                fetched = await files.fetch(source, sha256=sha256, on_progress=on_progress)
            except FetchError as error:
                raise FetchError(error.code, called + error.message, error.hint) from error
            held.callback(fetched.lease.release)
            return fetched

        model = await fetch(assignment.source, "", assignment.sha256)
        projector = None
        if assignment.projector is not None:
            projector = await fetch(assignment.projector, "`projector`: ")
        wished = assignment.adapters or ()
        adapters = [await fetch(each.source, f"adapter `{each.name}`: ") for each in wished]
        held.pop_all()
        return FetchedFiles(model=model, projector=projector, adapters=tuple(adapters))
