"""Which engines run on this host, and what each serves.

Compares the newest order with what runs and does the least: nothing, a change without a reload, or
a new engine. The new engine is loaded beside the old one where memory allows and takes over from
it; else the old one finishes its requests and ends first. When a load fails, what ran goes on, or
is loaded again.

Invariants: one engine serves at most, and one replaces it at most. Engines together never need more
memory than the host has. An engine that serves is retired only after its replacement has joined the
balancers, or where both do not fit.

Every method takes an event and returns what to do about it, in order. Afterwards `work`, `issues`
and `is_standing_in` may have changed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, assert_never

from ...shared.messages import Issue
from ...shared.models.assignments import (
    Assign,
    Assignment,
    Download,
    Phase,
    Reload,
    Work,
    needs_reload,
)
from ...shared.reports.model_info import ModelInfo
from ..models.retry_pauses import pause_after, spread
from .decisions import (
    CancelFetch,
    ChangeEngine,
    Decision,
    DialBalancers,
    EndEngine,
    EngineId,
    Exit,
    Fetch,
    FetchId,
    ModelFile,
    RetireEngine,
    StartEngine,
)
from .load_failures import change_failed, load_failed, too_large
from .restarts import Quit


@dataclass(frozen=True, slots=True)
class _Load:
    """What to load."""

    assignment: Assignment
    file: ModelFile
    is_fallback: bool = False


@dataclass(slots=True)
class _Engine:
    """`load` is `None` for the model that the agent is pinned to.

    `serves` is what it serves now, `told` what it was told last; both began as its `load`'s.
    """

    id: EngineId
    load: _Load | None
    serves: Assignment | None
    told: Assignment | None
    role: Literal["serving", "replacing", "retiring"]
    is_loaded: bool = False
    has_joined: bool = False

    @property
    def is_fallback(self) -> bool:
        return self.load is not None and self.load.is_fallback


class Assigner:
    """`memory` in bytes is what all engines may use together; 0: unknown, so one at a time.

    `slots` is the number where an assignment leaves it to the agent. `jitter` is this agent's own
    number in [0, 1), by which its attempts come at other times than other agents'.
    """

    def __init__(
        self, *, slots: int, memory: int, is_pinned: bool = False, jitter: float = 0.0
    ) -> None:
        self._jitter = jitter
        self._slots = slots
        self._memory = memory
        self._is_pinned = is_pinned
        self._is_stopping = False
        self._has_crashed = False
        self._exit: Exit | None = None
        self._order: Assign | None = None
        self._drain_timeout = 0.0
        self._engines: dict[EngineId, _Engine] = {}
        self._engine_ids: Iterator[EngineId] = map(EngineId, count(1))
        self._fetch_ids: Iterator[FetchId] = map(FetchId, count(1))
        self._fetch: FetchId | None = None
        self._download: Download | None = None
        self._load: _Load | None = None
        """What waits for room."""
        self._fallback: _Load | None = None
        """What ran, and was retired to make room."""
        self._failure: Issue | None = None
        self._retry_at: float | None = None
        self._pause = 0.0

    # ---- what others see

    @property
    def work(self) -> Work | None:
        """How far the newest order is; `None` before the first."""
        if self._order is None:
            return None
        return Work(
            revision=self._order.revision,
            assignment=self._order.assignment,
            phase=self._phase(),
            download=self._download,
            needed=self._needed(),
        )

    @property
    def issues(self) -> tuple[Issue, ...]:
        """Why the newest order cannot be obeyed."""
        return () if self._failure is None else (self._failure,)

    @property
    def is_standing_in(self) -> bool:
        """Whether the supervisor itself should be connected, since no engine is."""
        if self._is_stopping or any(each.has_joined for each in self._staying()):
            return False
        return not self._is_pinned or self._has_crashed

    @property
    def is_making_way(self) -> bool:
        """Whether an engine is about to take the supervisor's place."""
        return any(each.is_loaded and not each.has_joined for each in self._staying())

    @property
    def files(self) -> set[ModelFile]:
        """Those that run, or may be loaded again."""
        loads = [self._load, self._fallback, *(each.load for each in self._engines.values())]
        return {load.file for load in loads if load is not None}

    @property
    def loading(self) -> ModelInfo | None:
        """The model that will be served next, if that is known."""
        file = self._latest_file()
        return None if file is None else file.info

    def is_serving(self, id: EngineId) -> bool:
        """Whether a crash of this engine is the agent's: it served, or is all there is."""
        return (engine := self._engines.get(id)) is not None and engine.role == "serving"

    def next_deadline(self) -> float | None:
        """When to call `tick`."""
        return self._retry_at

    # ---- the agent's own events

    def start(self) -> list[Decision]:
        """The agent starts."""
        return [self._start_engine(None, "serving")] if self._is_pinned else []

    def stop(self) -> list[Decision]:
        """The agent should end: what runs is finished first."""
        self._is_stopping = True
        self._exit = Exit(0)
        decisions = self._abandon()
        if (serving := self._in_role("serving")) is not None:
            decisions.append(RetireEngine(serving.id, None))
        return decisions if self._engines else [*decisions, self._exit]

    def tick(self, now: float) -> list[Decision]:
        """A deadline may have passed."""
        if self._retry_at is None or now < self._retry_at:
            return []
        if self._load is not None or self._in_role("replacing") is not None:
            self._retry_at = now + self._pause  # what ran is being loaded again
            return []
        return self._begin()

    # ---- orders

    def ordered(self, order: Assign | Reload) -> list[Decision]:
        """A balancer says what this host should serve."""
        if self._is_pinned or self._is_stopping:
            return []
        match order:
            case Assign():
                return self._assigned(order)
            case Reload():
                return self._reload(order)
            case _:
                assert_never(order)

    def _assigned(self, order: Assign) -> list[Decision]:
        last = self._order
        if last is not None and order.revision < last.revision:
            return []
        self._order = order
        self._drain_timeout = order.drain_timeout
        if order.assignment == (None if last is None else last.assignment):
            return [] if self._failure is None or self._is_at_it else self._begin()
        self._forget_failure()
        if order.assignment is not None:
            return self._pursue(order.assignment)
        self._fallback = None
        serving = self._in_role("serving")
        return [*self._abandon(), *([self._retire(serving)] if serving else [])]

    def _reload(self, order: Reload) -> list[Decision]:
        if self._wish is None or self._is_at_it:
            return []
        self._drain_timeout = order.drain_timeout
        self._forget_failure()
        return self._begin()

    # ---- files

    def progressed(self, id: FetchId, download: Download) -> None:
        """So much of the file is here."""
        if id == self._fetch:
            self._download = download

    def fetched(
        self, id: FetchId, file: ModelFile, available: int | None, now: float
    ) -> list[Decision]:
        """The file is here. `available` is the memory in bytes that is free now, if known."""
        wish = self._wish
        if id != self._fetch or wish is None:
            return []
        self._end_fetch()
        if self._memory and file.needed is not None and file.needed > self._memory:
            issue = too_large(file.needed, self._memory)
            return self._fail(issue, available, now, may_retry=True)
        self._failure = None
        self._load = _Load(wish, file)
        return self._make_room(available)

    def fetch_failed(self, id: FetchId, issue: Issue, now: float) -> list[Decision]:
        """The file cannot be brought here, or is no model."""
        if id != self._fetch:
            return []
        self._end_fetch()
        return self._fail(issue, None, now, may_retry=True)

    # ---- engines

    def loaded(self, id: EngineId) -> list[Decision]:
        """The engine has loaded its model, for the first time or after a crash."""
        engine = self._engines[id]
        if engine.role == "retiring" or self._is_stopping:
            return []
        takes_over = self.is_standing_in or any(each.has_joined for each in self._staying())
        engine.is_loaded = True
        decisions: list[Decision] = [DialBalancers(id, takes_over)]
        if engine.told is not None and engine.told != engine.serves:
            decisions.append(ChangeEngine(id, engine.told))
        return decisions

    def joined(self, id: EngineId) -> list[Decision]:
        """A balancer let the engine in: it takes over."""
        engine = self._engines[id]
        if engine.role == "retiring" or engine.has_joined:
            return []
        engine.has_joined = True
        old = self._in_role("serving")
        if engine.role == "serving" or self._is_stopping:
            return []
        engine.role = "serving"
        self._fallback = None
        if self._failure is None:
            self._pause = 0.0
        return [] if old is None else [self._retire(old)]

    def changed(
        self, id: EngineId, assignment: Assignment, reason: str | None, now: float
    ) -> list[Decision]:
        """The engine serves `assignment` now, or refused it for `reason` and goes on as before."""
        engine = self._engines[id]
        if reason is None:
            engine.serves = assignment
            return []
        if engine.told != assignment:
            return []  # it was told something else since
        engine.told = engine.serves
        if assignment != self._wish or engine.role == "retiring":
            return []
        return self._fail(change_failed(reason), None, now, may_retry=False)

    def crashed(self, id: EngineId, code: int, reason: str | None, now: float) -> list[Decision]:
        """The engine's process ended, and starts again after a pause unless it is ended now."""
        engine = self._engines[id]
        engine.is_loaded = engine.has_joined = False
        if engine.role == "serving" and not self._is_stopping:
            self._has_crashed = True
            return []
        if engine.role != "replacing":
            return [EndEngine(id)]
        issue = load_failed(code, reason)
        return [self._retire(engine), *self._load_failed(engine, issue, None, now)]

    def ended(
        self, id: EngineId, quit: Quit, reason: str | None, available: int | None, now: float
    ) -> list[Decision]:
        """The engine's process ended and does not start again. `available`: as for `fetched`."""
        engine = self._engines.pop(id)
        if engine.role == "serving":
            self._exit = Exit(quit.code, quit.complaint)
            if not self._is_stopping:
                self._is_stopping = True
                leaving = [EndEngine(each.id) for each in self._leaving()]
                return [*self._abandon(), *leaving, *self._last_word()]
        if self._is_stopping:
            return self._last_word()
        if engine.role == "replacing":
            return self._load_failed(engine, load_failed(quit.code, reason), available, now)
        return self._make_room(available)

    def _last_word(self) -> list[Decision]:
        return [self._exit] if self._exit is not None and not self._engines else []

    # ---- the least that brings an assignment about

    def _pursue(self, wish: Assignment) -> list[Decision]:
        serving, replacing = self._in_role("serving"), self._in_role("replacing")
        if serving is not None and self._can_become(serving, wish):
            return [*self._abandon(), *self._change(serving, wish)]
        if replacing is not None and self._can_become(replacing, wish):
            return self._change(replacing, wish)
        return self._begin()

    def _can_become(self, engine: _Engine, wish: Assignment) -> bool:
        if engine.load is None:
            return False
        loaded = engine.load.assignment
        num_slots = loaded.slots or self._slots
        wanted = replace(wish, slots=wish.slots or self._slots)
        return not needs_reload(loaded, wanted, loaded_slots=num_slots)

    def _change(self, engine: _Engine, wish: Assignment) -> list[Decision]:
        if engine.told == wish:
            return []
        engine.told = wish
        return [ChangeEngine(engine.id, wish)] if engine.is_loaded else []

    # ---- an attempt: fetch, make room, load

    def _begin(self) -> list[Decision]:
        decisions = self._abandon()
        if (wish := self._wish) is None:
            return decisions
        self._retry_at = None
        self._fetch = next(self._fetch_ids)
        return [*decisions, Fetch(self._fetch, wish)]

    def _abandon(self) -> list[Decision]:
        """Stop the attempt, whatever it is at."""
        decisions: list[Decision] = []
        if self._fetch is not None:
            decisions.append(CancelFetch(self._fetch))
            self._end_fetch()
        self._load = None
        replacing = self._in_role("replacing")
        return decisions if replacing is None else [*decisions, self._retire(replacing)]

    def _end_fetch(self) -> None:
        self._fetch = None
        self._download = None

    def _make_room(self, available: int | None) -> list[Decision]:
        """Load what is to be loaded if there is room, else see to it that there will be."""
        if (load := self._load) is None:
            return []
        serving = self._in_role("serving")
        staying = [] if serving is None else [serving]
        leaving = self._leaving()
        if serving is not None and not self._fits(load, staying):
            return self._retire_for_now(serving)
        if leaving and not (self._fits(load, staying + leaving) and _is_free(load, available)):
            return []
        if serving is not None and not leaving and not _is_free(load, available):
            return self._retire_for_now(serving)
        self._load = None
        return [self._start_engine(load, "replacing")]

    def _fits(self, load: _Load, others: list[_Engine]) -> bool:
        """Whether the host's memory holds it together with `others`."""
        if not others:
            return True
        loads = [load, *(each.load for each in others)]
        needs = [each.file.needed for each in loads if each is not None]
        known = [each for each in needs if each is not None]
        return len(known) == len(loads) and sum(known) <= self._memory

    def _start_engine(
        self, load: _Load | None, role: Literal["serving", "replacing"]
    ) -> StartEngine:
        id = next(self._engine_ids)
        wish = None if load is None else load.assignment
        self._engines[id] = _Engine(id, load, serves=wish, told=wish, role=role)
        return StartEngine(id, wish, None if load is None else load.file)

    def _retire(self, engine: _Engine) -> Decision:
        is_loaded = engine.is_loaded and engine.role == "serving"
        engine.role = "retiring"
        return RetireEngine(engine.id, self._drain_timeout) if is_loaded else EndEngine(engine.id)

    def _retire_for_now(self, engine: _Engine) -> list[Decision]:
        """Its replacement does not fit beside it. Should that not load, it is loaded again."""
        if engine.load is not None and engine.serves is not None:
            self._fallback = replace(engine.load, assignment=engine.serves, is_fallback=True)
        return [self._retire(engine)]

    # ---- failures

    def _load_failed(
        self, engine: _Engine, issue: Issue, available: int | None, now: float
    ) -> list[Decision]:
        if not engine.is_fallback:
            is_cheap = self._fallback is None and self._in_role("serving") is None
            return self._fail(issue, available, now, may_retry=is_cheap)
        self._fallback = None
        return self._fail(self._failure or issue, available, now, may_retry=True)

    def _fail(
        self, issue: Issue, available: int | None, now: float, *, may_retry: bool
    ) -> list[Decision]:
        """Go back to what ran. `may_retry`: another attempt takes nothing from anybody."""
        self._failure = issue
        if may_retry:
            self._pause = pause_after(issue.code, self._pause)
            self._retry_at = now + spread(self._pause, self._jitter)
        if self._fallback is None or self._staying():
            return []
        self._load = self._fallback
        return self._make_room(available)

    def _forget_failure(self) -> None:
        self._failure = None
        self._retry_at = None
        self._pause = 0.0

    # ---- how things stand

    @property
    def _wish(self) -> Assignment | None:
        return None if self._order is None else self._order.assignment

    @property
    def _is_at_it(self) -> bool:
        """Whether an attempt is under way."""
        is_replacing = self._in_role("replacing") is not None
        return self._fetch is not None or self._load is not None or is_replacing

    def _in_role(self, role: str) -> _Engine | None:
        return next((each for each in self._engines.values() if each.role == role), None)

    def _staying(self) -> list[_Engine]:
        return [each for each in self._engines.values() if each.role != "retiring"]

    def _leaving(self) -> list[_Engine]:
        return [each for each in self._engines.values() if each.role == "retiring"]

    def _latest(self) -> _Engine | None:
        """The engine that brings the wish about, or did."""
        return self._in_role("replacing") or self._in_role("serving")

    def _phase(self) -> Phase:
        if self._failure is not None:
            return "failed"
        if self._fetch is not None:
            return "fetching"
        engine = self._latest()
        if self._load is not None or (self._wish is None and self._engines):
            return "draining"
        if engine is None:
            return "waiting"
        return "serving" if engine.is_loaded and engine.serves == self._wish else "loading"

    def _latest_file(self) -> ModelFile | None:
        engine = self._latest()
        load = engine.load if self._load is None and engine is not None else self._load
        return None if load is None else load.file

    def _needed(self) -> int | None:
        file = self._latest_file()
        return None if file is None else file.needed

    def check_integrity(self) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        roles = [each.role for each in self._engines.values()]
        if roles.count("serving") > 1 or roles.count("replacing") > 1:
            raise RuntimeError(f"too many engines: {roles}")
        if len(self._engines) > 1:
            *_, last = self._engines.values()
            others = [each for each in self._engines.values() if each is not last]
            if last.load is None or not self._fits(last.load, others):
                raise RuntimeError("two engines where memory is short")
        is_loading = self._in_role("replacing") is not None
        if (self._fetch is not None) + (self._load is not None) + is_loading > 1:
            raise RuntimeError("two attempts at once")
        if self._retry_at is not None and self._failure is None:
            raise RuntimeError("an attempt would be made again that did not fail")


def _is_free(load: _Load, available: int | None) -> bool:
    return available is None or load.file.needed is None or load.file.needed <= available
