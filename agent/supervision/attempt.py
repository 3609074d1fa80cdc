"""An attempt to bring an assignment about: how far it is, how it failed, when the next one comes.

Invariant: nothing is tried again that did not fail.
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
    """`jitter` is this agent's own number in [0, 1), which its pauses depend on."""

    def __init__(self, jitter: float) -> None:
        self._jitter = jitter
        self._ids: Iterator[FetchId] = map(FetchId, count(1))
        self._pause = 0.0
        self.fetch: FetchId | None = None
        self.beside: ModelFile | None = None
        """What is loaded, and stays, where only adapters are fetched."""
        self.download: Download | None = None
        self.load: Load | None = None
        """What waits for room."""
        self.fallback: Load | None = None
        """What ran, and was retired to make room."""
        self.failure: Issue | None = None
        self.more: tuple[Issue, ...] = ()
        """What else failed with it: adapters that a model is served without."""
        self.retry_at: float | None = None
        self.unfit: ModelFile | None = None
        """The file of what failed, since the host's memory does not hold it."""

    def begin(self, desired: Assignment, beside: ModelFile | None = None) -> FetchModel:
        """Fetch the file; or the adapters that `beside` does not have, which is loaded."""
        self.retry_at = None
        self.unfit = None
        self.fetch = next(self._ids)
        self.beside = beside
        return FetchModel(self.fetch, desired, beside)

    def cancel(self) -> list[Decision]:
        """Stop it, as far as no engine has been started."""
        self.load = None
        if self.fetch is None:
            return []
        cancelled = CancelFetch(self.fetch)
        self.end_fetch()
        return [cancelled]

    def reordered(self, desired: Assignment | None) -> None:
        """The same is ordered again, perhaps with what is left of devices."""
        if self.load is not None and desired is not None and self.load.assignment == desired:
            assignment = replace(
                self.load.assignment, takes_what_is_left=desired.takes_what_is_left
            )
            self.load = replace(self.load, assignment=assignment)

    def end_fetch(self) -> None:
        """The file is here, or will not come."""
        self.fetch = self.beside = None
        self.download = None

    # ---- how far it is, with the engines that there are

    def work(self, order: Assign, engines: Engines) -> Work:
        """What balancers hear of the order."""
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
        """The file that is loaded last, or will be."""
        engine = engines.latest
        if self.load is None and engine is not None:
            return engine.file
        return None if self.load is None else self.load.file

    def files(self, engines: Engines) -> set[ModelFile | AdapterOnHost]:
        """Those that run, or may be loaded again; adapters are files of their own."""
        loads = (load.file for load in (self.load, self.fallback) if load is not None)
        running = (each.file for each in engines)
        files = [*loads, *(file for file in (self.beside, *running) if file is not None)]
        adapters = {adapter for file in files for adapter in file.adapters}
        return {file.alone for file in files} | adapters

    def is_under_way(self, engines: Engines) -> bool:
        """Whether anything is being fetched or loaded."""
        is_loading = engines.replacing is not None
        return self.fetch is not None or self.load is not None or is_loading

    def _phase(self, desired: Assignment | None, engines: Engines) -> Phase:
        """A failure is shown until it is mended."""
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
        """Why it failed, if it did."""
        return () if self.failure is None else (self.failure, *self.more)

    def fell_short(self, shortage: Shortage, now: float) -> None:
        """It came about without some adapters."""
        self.failed(shortage.issues[0], now, may_retry=shortage.may_retry)
        self.more = shortage.issues[1:]

    def failed(self, issue: Issue, now: float, *, may_retry: bool) -> None:
        """It failed. `may_retry`: another attempt takes nothing from what runs."""
        self.failure = issue
        self.more = ()
        if may_retry:
            self._pause = pause_after(issue.code, self._pause)
            self.retry_at = now + spread(self._pause, self._jitter)

    def is_due(self, now: float) -> bool:
        """Whether it is time to try again."""
        return self.retry_at is not None and now >= self.retry_at

    def put_off(self, now: float) -> None:
        """Try again after another pause: what ran is being loaded at the moment."""
        self.retry_at = now + self._pause

    def succeeded(self) -> None:
        """The next failure is tried again soon."""
        if self.failure is None:
            self._pause = 0.0

    def forget_failure(self) -> None:
        """Something else is assigned, or the same anew."""
        self.failure = None
        self.unfit = None
        self.retry_at = None
        self._pause = 0.0

    def check_integrity(self, *, is_loading: bool) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        is_for_it = self.beside is not None or (self.load is not None and self.load.is_beside)
        is_other = is_loading and not is_for_it
        if (self.fetch is not None) + (self.load is not None) + is_other > 1:
            raise RuntimeError("two attempts at once")
        if self.retry_at is not None and self.failure is None:
            raise RuntimeError("an attempt would be made again that did not fail")
