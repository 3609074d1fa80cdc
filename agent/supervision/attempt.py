"""An attempt to serve an assignment: its progress, its failure, and the time of the next attempt.

Invariant: only a failed attempt is repeated.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from ...shared.messages import Issue
from ...shared.models.assignments import Assign, Assignment, Download, Phase, Work
from ..models.model_file import AdapterOnHost, ModelFile
from ..models.retry_pauses import pause_after, spread
from .decisions import CancelFetch, Decision, FetchId, FetchModel
from .engines import Engines, Load, Shortage


class Attempt:
    """The current attempt.

    `jitter` is this agent's own number in [0, 1), on which its pauses depend.
    """

    def __init__(self, jitter: float) -> None:
        self._jitter = jitter
        self._ids: Iterator[FetchId] = map(FetchId, count(1))
        self._pause = 0.0
        self.fetch: FetchId | None = None
        self.beside: ModelFile | None = None
        """The loaded model that stays, if only adapters are fetched."""
        self.download: Download | None = None
        self.load: Load | None = None
        """The load that waits for room."""
        self.fallback: Load | None = None
        """The load that ran before and was retired to free memory."""
        self.failure: Issue | None = None
        self.more: tuple[Issue, ...] = ()
        """Further failures of the same attempt: adapters that a model is served without."""
        self.retry_at: float | None = None
        self.unfit: ModelFile | None = None
        """The file that failed because the host's memory is too small for it."""

    def begin(self, desired: Assignment, beside: ModelFile | None = None) -> FetchModel:
        """Fetch the file of `desired`.

        If `beside` is given, that file is loaded already, and only the adapters that it lacks are
        fetched.
        """
        self.retry_at = None
        self.unfit = None
        self.fetch = next(self._ids)
        self.beside = beside
        return FetchModel(self.fetch, desired, beside)

    def cancel(self) -> list[Decision]:
        """Stop the attempt, unless an engine has been started."""
        self.load = None
        if self.fetch is None:
            return []
        cancelled = CancelFetch(self.fetch)
        self.end_fetch()
        return [cancelled]

    def reordered(self, desired: Assignment | None) -> None:
        """Update the waiting load after the same assignment was ordered again.

        Only `takes_what_is_left` may differ.
        """
        if self.load is not None and desired is not None and self.load.assignment == desired:
            assignment = replace(
                self.load.assignment, takes_what_is_left=desired.takes_what_is_left
            )
            self.load = replace(self.load, assignment=assignment)

    def end_fetch(self) -> None:
        """Note that the fetch ended, with or without a file."""
        self.fetch = self.beside = None
        self.download = None

    # ---- progress

    def work(self, order: Assign, engines: Engines) -> Work:
        """Return the progress of `order` for balancers."""
        file = self.latest_file(engines) if self.unfit is None else self.unfit
        return Work(
            revision=order.revision,
            assignment=order.assignment,
            phase=self._phase(order.assignment, engines),
            download=self.download,
            needed=None if file is None else file.needed,
            least=None if file is None else file.least,
            claims=() if file is None else file.claims,
        )

    def latest_file(self, engines: Engines) -> ModelFile | None:
        """Return the file that was loaded last, or will be loaded next."""
        engine = engines.latest
        if self.load is None and engine is not None:
            return engine.file
        return None if self.load is None else self.load.file

    def files(self, engines: Engines) -> set[ModelFile | AdapterOnHost]:
        """Return the files that run or may be loaded again. Each adapter is a file of its own."""
        loads = (load.file for load in (self.load, self.fallback) if load is not None)
        running = (each.file for each in engines)
        files = [*loads, *(file for file in (self.beside, *running) if file is not None)]
        adapters = {adapter for file in files for adapter in file.adapters}
        return {file.alone for file in files} | adapters

    def is_under_way(self, engines: Engines) -> bool:
        """Return whether a file is being fetched or loaded."""
        is_loading = engines.replacing is not None
        return self.fetch is not None or self.load is not None or is_loading

    def _phase(self, desired: Assignment | None, engines: Engines) -> Phase:
        """Return the phase. A failure is shown until it is fixed."""
        if self.failure is not None:
            return "failed"
        if self.fetch is not None:
            return "fetching"
        if self.load is not None or (desired is None and len(engines)):
            return "draining"
        engine = engines.latest
        if engine is None:
            return "waiting"
        return "serving" if engine.is_loaded and engine.serves == desired else "loading"

    # ---- failures

    @property
    def issues(self) -> tuple[Issue, ...]:
        """The reasons of the failure, if the attempt failed."""
        return () if self.failure is None else (self.failure, *self.more)

    def fell_short(self, shortage: Shortage, now: float) -> None:
        """Report that the model is served without some adapters."""
        self.failed(shortage.issues[0], now, may_retry=shortage.may_retry)
        self.more = shortage.issues[1:]

    def failed(self, issue: Issue, now: float, *, may_retry: bool) -> None:
        """Record a failure. `may_retry`: another attempt does not harm the running engine."""
        self.failure = issue
        self.more = ()
        if may_retry:
            self._pause = pause_after(issue.code, self._pause)
            self.retry_at = now + spread(self._pause, self._jitter)

    def is_due(self, now: float) -> bool:
        """Return whether the next attempt is due."""
        return self.retry_at is not None and now >= self.retry_at

    def put_off(self, now: float) -> None:
        """Delay the next attempt by another pause, because the previous model is being loaded
        again.
        """
        self.retry_at = now + self._pause

    def succeeded(self) -> None:
        """Reset the pause, unless there is a failure."""
        if self.failure is None:
            self._pause = 0.0

    def forget_failure(self) -> None:
        """Forget the failure, because of a new assignment or because the same one was ordered
        again.
        """
        self.failure = None
        self.unfit = None
        self.retry_at = None
        self._pause = 0.0

    def check_integrity(self, *, is_loading: bool) -> None:
        """Raise `RuntimeError` if an invariant is broken; for tests."""
        is_for_it = self.beside is not None or (self.load is not None and self.load.is_beside)
        is_other = is_loading and not is_for_it
        if (self.fetch is not None) + (self.load is not None) + is_other > 1:
            raise RuntimeError("two attempts at once")
        if self.retry_at is not None and self.failure is None:
            raise RuntimeError("an attempt that did not fail would be repeated")
