"""All files of an assignment, fetched one after the other: model, its companions and adapters.

They are leased together: whoever gets them holds one lease for what is loaded with the model, and
one for each adapter, since those come and go while the model stays.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ...shared.models.assignments import Assignment, WishedAdapter
from .model_file import AdapterOnHost
from .port import FetchedModel, FetchError, ModelFiles, OnProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFiles:
    """`adapters` are those of `wished`: of the assignment's, in its order, all that can be had.

    `failures` say why others cannot. `release` gives up all but the adapters. `bytes` is the size
    of model and projector.
    """

    model: FetchedModel
    projector: FetchedModel | None = None
    draft_model: FetchedModel | None = None
    wished: tuple[WishedAdapter, ...] = ()
    adapters: tuple[FetchedModel, ...] = ()
    failures: tuple[FetchError, ...] = ()

    @property
    def bytes(self) -> int:
        beside = () if self.projector is None else (self.projector,)
        return sum(each.bytes for each in (self.model, *beside))

    @property
    def projector_path(self) -> str | None:
        return None if self.projector is None else str(self.projector.path)

    @property
    def draft_path(self) -> str | None:
        return None if self.draft_model is None else str(self.draft_model.path)

    def release(self) -> None:
        for each in (self.model, self.projector, self.draft_model):
            if each is not None:
                each.lease.release()

    def release_all(self) -> None:
        """The adapters, too."""
        self.release()
        release_adapters(self.adapters)


def release_adapters(adapters: Sequence[FetchedModel]) -> None:
    for each in adapters:
        each.lease.release()


async def fetch_all(
    files: ModelFiles, assignment: Assignment, on_progress: OnProgress
) -> FetchedFiles:
    """Raises `FetchError` that says which file is meant; then nothing stays leased.

    A model does without the adapters that cannot be had.
    """
    adapters: list[tuple[WishedAdapter, FetchedModel]] = []
    failures: list[FetchError] = []
    with ExitStack() as held:
        bringer = _Bringer(files, on_progress, held)
        model = await bringer.bring(assignment.source, "", assignment.sha256)
        projector = await bringer.bring_any(assignment.projector, "`projector`: ")
        draft = draft_source(assignment)
        draft_model = await bringer.bring_any(draft, "`engine.draft_model`: ")
        for each in assignment.adapters or ():
            try:
                adapters.append((each, await bringer.bring_adapter(each)))
            except FetchError as error:
                failures.append(error)
        held.pop_all()
    return FetchedFiles(
        model=model,
        projector=projector,
        draft_model=draft_model,
        wished=tuple(wished for wished, _ in adapters),
        adapters=tuple(fetched for _, fetched in adapters),
        failures=tuple(failures),
    )


async def fetch_adapters(
    files: ModelFiles, wished: Sequence[WishedAdapter], on_progress: OnProgress
) -> tuple[FetchedModel, ...]:
    """These alone. Raises `FetchError` as `fetch_all` does, if one of them cannot be had."""
    with ExitStack() as held:
        bringer = _Bringer(files, on_progress, held)
        adapters = [await bringer.bring_adapter(each) for each in wished]
        held.pop_all()
    return tuple(adapters)


def adapters_on_host(
    wished: Sequence[WishedAdapter], fetched: Sequence[FetchedModel]
) -> tuple[AdapterOnHost, ...]:
    """What was fetched for each."""
    return tuple(
        AdapterOnHost(wish.source, str(file.path), file.bytes)
        for wish, file in zip(wished, fetched, strict=True)
    )


def draft_source(assignment: Assignment) -> str | None:
    """What to fetch as the draft model; a path on the host is there already."""
    draft = assignment.engine.draft_model
    return None if draft is None or draft.startswith("/") else draft


@dataclass(frozen=True, slots=True)
class _Bringer:
    """Fetches, and gives up all leases with `held`."""

    files: ModelFiles
    on_progress: OnProgress
    held: ExitStack

    async def bring(self, source: str, called: str, sha256: str | None = None) -> FetchedModel:
        try:
            fetched = await self.files.fetch(source, sha256=sha256, on_progress=self.on_progress)
        except FetchError as error:
            raise FetchError(error.code, called + error.message, error.hint) from error
        self.held.callback(fetched.lease.release)
        return fetched

    async def bring_any(self, source: str | None, called: str) -> FetchedModel | None:
        return None if source is None else await self.bring(source, called)

    async def bring_adapter(self, wished: WishedAdapter) -> FetchedModel:
        try:
            return await self.bring(wished.source, f"adapter `{wished.name}`: ")
        except FetchError as error:
            error.adapter = wished.name
            raise
