"""Decides which engines run at one place of this host, and what each engine serves.

A host has one place per model that it serves (`supervisor.py`); places share its memory
(`room.py`).

The assigner compares the newest order with the running engines and makes the smallest change:
nothing, a change without a reload, or a new engine. New adapters are fetched first, and loaded by
the running engine. If no engine serves the model yet, it is loaded without adapters that cannot be
fetched. If memory allows, the new engine is loaded while the old engine still serves, and then
takes over. Otherwise the old engine first finishes its requests and ends. If a load fails, the
previous model keeps running, or is loaded again. A model that does not fit together with the
models of other places waits until they free memory.

An agent that is pinned to a model has one engine. A reload restarts that engine, since two copies
of the model may not fit.

Invariants: at most one engine serves, and at most one replaces it. All engines together never need
more memory than the host has. An engine that serves is retired only after its replacement has
joined the balancers, or if both do not fit.

Every method takes an event and returns the decisions about it, in order. After each call, read
`work`, `issues` and `is_standing_in` again.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from ...shared.messages import Issue
from ...shared.models.assignments import (
    Assign,
    Assignment,
    Download,
    MemoryPart,
    Reload,
    Work,
)
from ...shared.reports.model_info import ModelInfo
from ..models.model_file import AdapterOnHost, ModelFile
from .attempt import Attempt
from .decisions import (
    Decision,
    DialBalancers,
    EndEngine,
    EngineId,
    Exit,
    FetchId,
    RestartEngine,
    RetireEngine,
)
from .engines import Engine, Engines, LeftOut, Load, Shortage
from .load_failures import adapters_crashed, load_failed, no_memory
from .restarts import Quit
from .room import Room


class Assigner:
    """The assigner of one place.

    `room` is the memory shared by all engines of the host; `ids` are numbers for engines. `slots`
    applies if an assignment does not set them. `jitter` is this agent's own number in [0, 1). It
    spreads the attempts of different agents over time.
    """

    def __init__(
        self,
        *,
        slots: int,
        room: Room,
        is_pinned: bool = False,
        jitter: float = 0.0,
        ids: Iterator[int] | None = None,
    ) -> None:
        self._slots = slots
        self._is_pinned = is_pinned
        self._is_stopping = False
        self._was_interrupted = False
        """True if an engine that served crashed or was restarted."""
        self._exit: Exit | None = None
        self._order: Assign | None = None
        self._drain_timeout = 0.0
        self._engines = Engines(room, ids)
        self._attempt = Attempt(jitter)

    # ---- properties

    @property
    def work(self) -> Work | None:
        """The progress of the newest order; `None` before the first order."""
        if self._order is None:
            return None
        return self._attempt.work(self._order, self._engines)

    @property
    def issues(self) -> tuple[Issue, ...]:
        """Why the newest order cannot be carried out."""
        return self._attempt.issues

    @property
    def is_standing_in(self) -> bool:
        """Return whether the supervisor itself should be connected, because no engine is
        connected.
        """
        if self._is_stopping or self._engines.is_connected:
            return False
        return not self._is_pinned or self._was_interrupted

    @property
    def is_making_way(self) -> bool:
        """Return whether an engine is about to replace the supervisor's connections."""
        return self._engines.is_connecting

    @property
    def files(self) -> set[ModelFile | AdapterOnHost]:
        """The files that are loaded, or may be loaded again."""
        return self._attempt.files(self._engines)

    @property
    def is_spare(self) -> bool:
        """Return whether no model is served here, or will be."""
        return self._desired is None and not self._engines and not self._is_pinned

    @property
    def has_engines(self) -> bool:
        """Return whether engine processes run here, or are about to start."""
        return bool(self._engines)

    @property
    def waits_for_room(self) -> bool:
        """Return whether a fetched file waits for memory."""
        return self._attempt.load is not None

    def adapters_of(self, id: EngineId) -> tuple[str, ...]:
        """Return the paths of the adapters that this engine serves, in its assignment's order."""
        served = self._engines[id].served
        return () if served is None else tuple(each.path for each in served.file.adapters)

    def beside(self, id: EngineId) -> tuple[MemoryPart, ...]:
        """Return, per memory, the bytes that the host's other engines use or may still take."""
        return self._engines.beside(id)

    @property
    def loading(self) -> ModelInfo | None:
        """The model that will be served next; `None` if unknown."""
        file = self._attempt.latest_file(self._engines)
        return None if file is None else file.info

    def is_serving(self, id: EngineId) -> bool:
        """Return whether this engine serves, so that its crash is an issue of the agent."""
        return (engine := self._engines.get(id)) is not None and engine.role == "serving"

    def next_deadline(self) -> float | None:
        """Return the time at which to call `tick`; `None` if there is no deadline."""
        return self._attempt.retry_at

    # ---- the agent's own events

    def start(self) -> list[Decision]:
        """Start the agent."""
        return [self._engines.start(None, "serving")] if self._is_pinned else []

    def stop(self) -> list[Decision]:
        """End the agent after its running requests have finished."""
        self._is_stopping = True
        self._exit = Exit(0)
        decisions = self._abandon()
        if (serving := self._engines.serving) is not None:
            decisions.append(RetireEngine(serving.id, None))
        return decisions if self._engines else [*decisions, self._exit]

    def tick(self, now: float) -> list[Decision]:
        """Try again if a retry is due."""
        if not self._attempt.is_due(now):
            return []
        if self._attempt.load is not None or self._engines.replacing is not None:
            self._attempt.put_off(now)  # what ran is being loaded again
            return []
        return self._retry()

    # ---- orders

    def ordered(self, order: Assign | Reload) -> list[Decision]:
        """Handle an order about what this host should serve."""
        if self._is_stopping:
            return []
        match order:
            case Assign():
                return [] if self._is_pinned else self._assigned(order)
            case Reload():
                return self._restart(order) if self._is_pinned else self._reload(order)
            case _:
                assert_never(order)

    def _assigned(self, order: Assign) -> list[Decision]:
        last = self._order
        if last is not None and order.revision < last.revision:
            return []
        self._order = order
        self._drain_timeout = order.drain_timeout
        if order.assignment == (None if last is None else last.assignment):
            self._attempt.reordered(order.assignment)
            if self._fetches_by_other_hosts(last, order):
                return self._retry()
            is_idle = not self._attempt.is_under_way(self._engines)
            return self._retry() if is_idle and self._attempt.failure is not None else []
        self._attempt.forget_failure()
        if order.assignment is not None:
            return self._pursue(order.assignment)
        self._attempt.fallback = None
        serving = self._engines.serving
        return [*self._abandon(), *([serving.retire(self._drain_timeout)] if serving else [])]

    def _fetches_by_other_hosts(self, last: Assign | None, order: Assign) -> bool:
        """Return whether a fetch is running whose `http_hosts` have changed."""
        if self._attempt.fetch is None or last is None or last.assignment is None:
            return False
        hosts = () if order.assignment is None else order.assignment.http_hosts
        return last.assignment.http_hosts != hosts

    def _reload(self, order: Reload) -> list[Decision]:
        if self._desired is None or self._attempt.is_under_way(self._engines):
            return []
        self._drain_timeout = order.drain_timeout
        self._attempt.forget_failure()
        return self._begin()

    def _restart(self, order: Reload) -> list[Decision]:
        """Load the pinned model again, unless it is being loaded."""
        if (serving := self._engines.serving) is None:
            return []
        self._was_interrupted = True
        serving.is_loaded = serving.has_joined = False
        return [RestartEngine(serving.id, order.drain_timeout)]

    # ---- files

    def progressed(self, id: FetchId, download: Download) -> None:
        """Record the progress of a fetch."""
        if id == self._attempt.fetch:
            self._attempt.download = download

    def fetched(
        self,
        id: FetchId,
        file: ModelFile,
        available: int | None,
        now: float,
        *,
        issues: tuple[Issue, ...] = (),
    ) -> list[Decision]:
        """Handle a finished fetch. `available` is the free memory in bytes, if known.

        `issues` say why some adapters are missing.
        """
        desired = self._desired
        if id != self._attempt.fetch or desired is None:
            return []
        is_beside = self._attempt.beside is not None
        self._attempt.end_fetch()
        if (issue := self._engines.too_large(file)) is not None:
            self._attempt.unfit = file
            return self._fail(issue, available, now, may_retry=True)
        if issues and self._is_kept(desired):
            return self._fail(issues[0], available, now, may_retry=True)
        self._attempt.failure = None
        self._attempt.load = Load(desired, file, is_beside=is_beside)
        if issues:
            shortage = Shortage(desired, issues, may_retry=True)
            self._attempt.load = Load(_with_those_of(file, desired), file, shortage=shortage)
        return self._make_room(available, now)

    def room_changed(self, available: int | None, now: float) -> list[Decision]:
        """Try to load again after engines of other places loaded or ended.

        `available` is the free memory in bytes, if known.
        """
        return [] if self._is_stopping else self._make_room(available, now)

    def leave(self) -> None:
        """Give up the place, which has no engines."""
        self._engines.leave()

    def _is_kept(self, desired: Assignment) -> bool:
        """Return whether the model runs, or will be loaded again.

        Such a model keeps its previous adapters rather than running with fewer.
        """
        serving = self._engines.serving
        loads = (None if serving is None else serving.served, self._attempt.fallback)
        return any(load is not None and load.assignment.name == desired.name for load in loads)

    def fetch_failed(
        self, id: FetchId, issue: Issue, now: float, *, unfit: ModelFile | None = None
    ) -> list[Decision]:
        """Handle a failed fetch.

        `unfit` is a model that was not fetched, since its header shows that it does not fit.
        """
        if id != self._attempt.fetch:
            return []
        self._attempt.end_fetch()
        self._attempt.unfit = unfit
        return self._fail(issue, None, now, may_retry=True)

    # ---- engines

    def loaded(
        self,
        id: EngineId,
        now: float,
        left_out: LeftOut | None = None,
        held: tuple[MemoryPart, ...] = (),
    ) -> list[Decision]:
        """Handle that the engine has loaded its model, for the first time or after a crash.

        `left_out` names adapters that the engine could not load. `held` is the memory that the
        engine uses, if known.
        """
        engine = self._engines[id]
        engine.held = held
        if engine.role == "retiring" or self._is_stopping:
            return []
        if left_out is not None:
            desired = engine.serves
            is_new = engine.role == "replacing" and not engine.is_fallback
            if is_new and desired is not None and self._is_kept(desired):
                ended = engine.retire(self._drain_timeout)
                return [ended, *self._load_failed(engine, left_out.issues[0], None, now)]
            engine.left_out(left_out)
            if engine.role == "serving":
                self._report_shortage(engine, now)
        takes_over = self.is_standing_in or self._engines.is_connected
        engine.is_loaded = True
        return [DialBalancers(id, takes_over), *engine.catch_up()]

    def _report_shortage(self, engine: Engine, now: float) -> None:
        """Report the adapters that a served model lacks, and retry them if that may help."""
        shortage, engine.shortage = engine.shortage, None
        if shortage is not None and self._attempt.failure is None:
            self._attempt.fell_short(shortage, now)

    def joined(self, id: EngineId, now: float) -> list[Decision]:
        """Let the engine take over, because a balancer has accepted it."""
        engine = self._engines[id]
        if engine.role == "retiring" or engine.has_joined:
            return []
        engine.has_joined = True
        engine.is_recalled = False
        old = self._engines.serving
        if engine.role == "serving" or self._is_stopping:
            return []
        engine.role = "serving"
        self._attempt.fallback = None
        self._attempt.succeeded()
        if engine.shortage is not None and engine.shortage.desired == self._desired:
            self._report_shortage(engine, now)
        return [] if old is None else [old.retire(self._drain_timeout)]

    def changed(
        self, id: EngineId, assignment: Assignment, issue: Issue | None, now: float
    ) -> list[Decision]:
        """Handle the engine's answer to a change: it serves `assignment`, or refused it."""
        engine = self._engines[id]
        is_desired = assignment == self._desired and engine.role != "retiring"
        if issue is None:
            engine.changed(assignment)
            if is_desired:
                self._attempt.forget_failure()
            return []
        if not engine.refused(assignment) or not is_desired:
            return []  # it was asked for something else since
        return self._fail(issue, None, now, may_retry=False)

    def crashed(self, id: EngineId, code: int, reason: str | None, now: float) -> list[Decision]:
        """Handle the crash of the engine's process. The process restarts after a pause unless
        ended now.
        """
        engine = self._engines[id]
        has_given_up = engine.crashed()
        if engine.role == "serving" and not self._is_stopping:
            self._was_interrupted = True
            if not has_given_up:
                return []
            return self._fail(adapters_crashed(code, reason), None, now, may_retry=False)
        if engine.role != "replacing":
            return [EndEngine(id)]
        issue = load_failed(code, reason, engine.file)
        return [engine.retire(self._drain_timeout), *self._load_failed(engine, issue, None, now)]

    def ended(
        self, id: EngineId, quit: Quit, reason: str | None, available: int | None, now: float
    ) -> list[Decision]:
        """Handle the end of the engine's process, which does not restart.

        `available` is the free memory in bytes, if known.
        """
        engine = self._engines.pop(id)
        if engine.is_recalled and not self._is_stopping:
            return self._begin()  # it had finished when it was recalled
        if engine.role == "serving":
            self._exit = Exit(quit.code, quit.complaint)
            if not self._is_stopping:
                self._is_stopping = True
                leaving = [EndEngine(each.id) for each in self._engines.leaving]
                return [*self._abandon(), *leaving, *self._last_word()]
        if self._is_stopping:
            return self._last_word()
        if engine.role == "replacing":
            issue = load_failed(quit.code, reason, engine.file)
            return self._load_failed(engine, issue, available, now)
        return self._make_room(available, now)

    def _last_word(self) -> list[Decision]:
        return [self._exit] if self._exit is not None and not self._engines else []

    # ---- the smallest change that serves an assignment

    def _pursue(self, desired: Assignment) -> list[Decision]:
        if (engine := self._engines.that_may_return(desired, self._slots)) is not None:
            self._attempt.fallback = None
            return [*self._abandon(), engine.recall(), *self._change(engine, desired)]
        engine = self._engines.that_can_become(desired, self._slots)
        if engine is None:
            return self._begin()
        is_serving = engine.role == "serving"
        decisions = self._abandon() if is_serving else self._attempt.cancel()
        return [*decisions, *self._change(engine, desired)]

    def _change(self, engine: Engine, desired: Assignment) -> list[Decision]:
        if engine.adapters.missing(desired):
            return [self._attempt.begin(desired, beside=engine.file)]
        return engine.change(desired)

    def _retry(self) -> list[Decision]:
        """Try the desired assignment again: as a change, if a change failed."""
        desired, serving = self._desired, self._engines.serving
        if desired is None or serving is None or serving.serves == desired:
            return self._begin()
        return self._pursue(desired)

    # ---- an attempt: fetch, make room, load

    def _begin(self) -> list[Decision]:
        decisions = self._abandon()
        desired = self._desired
        return decisions if desired is None else [*decisions, self._attempt.begin(desired)]

    def _abandon(self) -> list[Decision]:
        """Stop the attempt at any stage."""
        decisions = self._attempt.cancel()
        replacing = self._engines.replacing
        return (
            decisions if replacing is None else [*decisions, replacing.retire(self._drain_timeout)]
        )

    def _make_room(self, available: int | None, now: float) -> list[Decision]:
        """Load the waiting model if there is room; otherwise free memory for it."""
        if (load := self._attempt.load) is None:
            return []
        if load.is_beside:
            return self._load_adapters(load)
        if self._engines.is_loading_elsewhere or not self._engines.fits(load, ()):
            return []
        serving = self._engines.serving
        staying = [] if serving is None else [serving]
        leaving = self._engines.leaving
        if serving is not None and not self._engines.fits(load, staying):
            return self._retire_for_now(serving)
        if leaving and not (
            self._engines.fits(load, staying + leaving) and load.is_free(available)
        ):
            return []
        if serving is not None and not leaving and not load.is_free(available):
            return self._retire_for_now(serving)
        self._attempt.load = None
        if self._engines.has_neighbours and not (load.is_fallback or load.is_free(available)):
            issue = no_memory(load.file.needed, available)
            return self._fail(issue, available, now, may_retry=True)
        return [self._engines.start(load, "replacing")]

    def _load_adapters(self, load: Load) -> list[Decision]:
        """Load adapters once retiring engines have freed enough memory."""
        engine = self._engines.that_can_become(load.assignment, self._slots)
        if engine is None:
            return self._begin()
        others = [each for each in self._engines if each is not engine]
        if not self._engines.fits(load, others):
            return []
        self._attempt.load = None
        engine.adapters.add(load.file.adapters)
        return engine.change(load.assignment)

    def _retire_for_now(self, engine: Engine) -> list[Decision]:
        """Retire the engine, since its replacement does not fit in memory with it.

        If the replacement fails to load, the engine's model is loaded again.
        """
        if (served := engine.served) is not None:
            self._attempt.fallback = replace(served, is_fallback=True)
        return [engine.retire(self._drain_timeout)]

    # ---- failures

    def _load_failed(
        self, engine: Engine, issue: Issue, available: int | None, now: float
    ) -> list[Decision]:
        cancelled = self._attempt.cancel()  # of adapters for it
        if not engine.is_fallback:
            is_cheap = self._attempt.fallback is None and self._engines.serving is None
            return [*cancelled, *self._fail(issue, available, now, may_retry=is_cheap)]
        self._attempt.fallback = None
        issue = self._attempt.failure or issue
        return [*cancelled, *self._fail(issue, available, now, may_retry=True)]

    def _fail(
        self, issue: Issue, available: int | None, now: float, *, may_retry: bool
    ) -> list[Decision]:
        """Report the failure, and load the previous model again if it was unloaded.

        `may_retry`: another attempt does not harm the running engine.
        """
        self._attempt.failed(issue, now, may_retry=may_retry)
        if self._attempt.fallback is None or self._engines.staying:
            return []
        self._attempt.load = self._attempt.fallback
        return self._make_room(available, now)

    # ---- state

    @property
    def _desired(self) -> Assignment | None:
        return None if self._order is None else self._order.assignment

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; for tests."""
        self._engines.check_integrity()
        self._attempt.check_integrity(is_loading=self._engines.replacing is not None)


def _with_those_of(file: ModelFile, desired: Assignment) -> Assignment:
    """Return `desired` with only the adapters that `file` has."""
    here = {each.source for each in file.adapters}
    there = tuple(each for each in desired.adapters or () if each.source in here)
    return replace(desired, adapters=there)
