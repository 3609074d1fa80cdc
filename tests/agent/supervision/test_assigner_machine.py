"""A host that obeys: any orders, files that come or fail, engines that load, crash and end."""

import signal
from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from arriero.agent.models.model_file import AdapterOnHost, ModelFile
from arriero.agent.supervision.assigner import Assigner
from arriero.agent.supervision.decisions import (
    CancelFetch,
    ChangeEngine,
    Decision,
    DialBalancers,
    EndEngine,
    EngineId,
    Exit,
    FetchId,
    FetchModel,
    RecallEngine,
    RestartEngine,
    RetireEngine,
    StartEngine,
)
from arriero.agent.supervision.engines import LeftOut
from arriero.agent.supervision.restarts import Quit
from arriero.agent.supervision.room import Room
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import Assign, Assignment, DesiredAdapter, Reload

MEMORY = 100
SIZES = {"file:///small": 30, "file:///half": 50, "file:///large": 90, "file:///giant": 101}
NO_ADAPTER = Issue(code="adapter", message="adapter `x`: it is broken")
ADAPTERS = {f"file:///{name}": AdapterOnHost(f"file:///{name}", name, 4) for name in "abc"}

assignments = st.builds(
    Assignment,
    name=st.sampled_from(["m", "n"]),
    source=st.sampled_from(sorted(SIZES)),
    slots=st.sampled_from([None, 1, 2, 8]),
    context_size=st.sampled_from([None, 64]),
    chat_template=st.sampled_from([None, "x"]),
    adapters=st.none()
    | st.lists(
        st.sampled_from(sorted(ADAPTERS)).map(lambda one: DesiredAdapter(name="x", source=one)),
        max_size=3,
    ).map(tuple),
)


def adapters_of(assignment: Assignment) -> tuple[AdapterOnHost, ...]:
    return tuple(ADAPTERS[each.source] for each in assignment.adapters or ())


def file_of(assignment: Assignment) -> ModelFile:
    file = ModelFile(assignment.source, SIZES[assignment.source])
    return file.with_adapters(adapters_of(assignment))


def needed_by(assignment: Assignment) -> int:
    return file_of(assignment).needed or 0


@dataclass(slots=True)
class Engine:
    """An engine as it is in this world; `needed` without adapters."""

    needed: int
    serves: Assignment
    is_loaded: bool = False
    has_joined: bool = False
    is_retiring: bool = False
    is_recalled: bool = False
    is_dying: bool = False


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.assigner = Assigner(slots=4, room=Room(MEMORY))
        self.now = 0.0
        self.revision = 0
        self.desired: Assignment | None = None
        self.fetches: dict[FetchId, FetchModel] = {}
        self.engines: dict[EngineId, Engine] = {}
        self.changes: list[tuple[EngineId, Assignment]] = []
        self.available: int | None = None
        self.exit: Exit | None = None

    # ---- orders

    @rule(assignment=st.none() | assignments, drain_timeout=st.sampled_from([0.0, 30.0]))
    def assign(self, assignment: Assignment | None, drain_timeout: float) -> None:
        self.revision += 1
        self.desired = assignment
        self.order(Assign(revision=self.revision, assignment=assignment))

    @rule(assignment=st.none() | assignments)
    def assign_late(self, assignment: Assignment | None) -> None:
        """What another balancer says that has not heard the news yet."""
        if self.revision:
            before = self.assigner.work
            late = Assign(revision=self.revision - 1, assignment=assignment)
            assert self.assigner.ordered(late) == []
            assert self.assigner.work == before

    @rule()
    def assign_again(self) -> None:
        self.revision += 1
        decisions = self.assigner.ordered(Assign(revision=self.revision, assignment=self.desired))
        assert decisions == [] or self.assigner.issues, "the same state touches nothing"
        self.carry_out(decisions)

    @rule()
    def reload(self) -> None:
        self.order(Reload(drain_timeout=0.0))

    def order(self, order: Assign | Reload) -> None:
        self.carry_out(self.assigner.ordered(order))

    # ---- files

    @precondition(lambda self: self.fetches)
    @rule(data=st.data(), available=st.sampled_from([None, 20, 60, 100]))
    def fetched(self, data: st.DataObject, available: int | None) -> None:
        id = data.draw(st.sampled_from(sorted(self.fetches)))
        missing = data.draw(st.frozensets(st.sampled_from(sorted(ADAPTERS)), max_size=2))
        self.fetch_comes(id, available, missing)

    def fetch_comes(
        self, id: FetchId, available: int | None, missing: frozenset[str] = frozenset()
    ) -> None:
        fetch = self.fetches.pop(id)
        file = file_of(fetch.assignment)
        here = tuple(each for each in file.adapters if each.source not in missing)
        if fetch.beside is None and here != file.adapters:
            file = file.with_adapters(here)
            self.available = available
            told = self.assigner.fetched(id, file, available, self.now, issues=(NO_ADAPTER,))
            self.carry_out(told)
            return
        if fetch.beside is not None:
            assert fetch.beside.alone == file.alone, "the model stays"
            file = fetch.beside.with_adapters(adapters_of(fetch.assignment))
        self.available = available
        self.carry_out(self.assigner.fetched(id, file, available, self.now))

    @precondition(lambda self: self.fetches)
    @rule(data=st.data())
    def fetch_failed(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.fetches)))
        del self.fetches[id]
        issue = Issue(code="not_found", message="it is not there")
        self.carry_out(self.assigner.fetch_failed(id, issue, self.now))
        assert self.assigner.issues == (issue,)

    # ---- engines

    @precondition(lambda self: self.engines)
    @rule(data=st.data())
    def goes_on(self, data: st.DataObject) -> None:
        self.engine_goes_on(data.draw(st.sampled_from(sorted(self.engines))))

    @precondition(lambda self: self.engines)
    @rule(data=st.data())
    def loads_without_adapters(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.engines)))
        engine = self.engines[id]
        is_leaving = engine.is_dying or engine.is_retiring
        if engine.is_loaded or is_leaving or not engine.serves.adapters:
            return
        engine.is_loaded = True
        engine.serves = replace(engine.serves, adapters=())
        decisions = self.assigner.loaded(id, self.now, LeftOut(("x",), (NO_ADAPTER,)))
        assert any(isinstance(each, DialBalancers) for each in decisions) or (
            EndEngine(id) in decisions and self.assigner.issues
        )
        self.carry_out(decisions)

    def engine_goes_on(self, id: EngineId) -> bool:
        """What comes next if all is well. Returns whether anything does."""
        engine = self.engines[id]
        if engine.is_dying or engine.is_retiring:
            self.ends(id, 0)
        elif not engine.is_loaded:
            engine.is_loaded = True
            decisions = self.assigner.loaded(id, self.now)
            assert any(isinstance(each, DialBalancers) for each in decisions)
            self.carry_out(decisions)
        elif not engine.has_joined:
            engine.has_joined, engine.is_recalled = True, False
            self.carry_out(self.assigner.joined(id, self.now))
        else:
            return False
        return True

    def ends(self, id: EngineId, code: int, available: int | None = None) -> None:
        del self.engines[id]
        self.changes = [each for each in self.changes if each[0] != id]
        self.available = available
        self.carry_out(self.assigner.ended(id, Quit(code), None, available, self.now))

    @precondition(lambda self: self.engines)
    @rule(data=st.data())
    def cannot_load(self, data: st.DataObject) -> None:
        loading = [id for id, each in self.engines.items() if not each.is_loaded]
        if loading:
            id = data.draw(st.sampled_from(loading))
            if self.assigner.is_serving(id):
                return  # a crash, for one that served already
            is_news = not (self.engines[id].is_dying or self.engines[id].is_retiring)
            self.ends(id, 1)
            assert self.assigner.issues or not is_news

    @precondition(lambda self: any(each.is_recalled for each in self.engines.values()))
    @rule(data=st.data())
    def had_ended_when_it_was_recalled(self, data: st.DataObject) -> None:
        recalled = [id for id, each in self.engines.items() if each.is_recalled]
        self.ends(data.draw(st.sampled_from(recalled)), 0)

    @precondition(lambda self: self.engines)
    @rule(data=st.data())
    def crashes(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.engines)))
        engine = self.engines[id]
        if not engine.is_dying:
            engine.is_loaded = engine.has_joined = engine.is_recalled = False
            self.changes = [each for each in self.changes if each[0] != id]
            self.carry_out(self.assigner.crashed(id, -signal.SIGABRT, "oh", self.now))

    @precondition(lambda self: self.changes)
    @rule(is_refused=st.booleans())
    def changed(self, is_refused: bool) -> None:
        id, assignment = self.changes.pop(0)
        if not is_refused:
            self.engines[id].serves = assignment
        issue = Issue(code="adapter", message="it is broken") if is_refused else None
        self.carry_out(self.assigner.changed(id, assignment, issue, self.now))
        assert self.assigner.adapters_of(id) == tuple(
            each.path for each in adapters_of(self.engines[id].serves)
        )

    # ---- time

    @rule(seconds=st.sampled_from([1.0, 10.0, 1000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.carry_out(self.assigner.tick(self.now))

    # ---- decisions

    def carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case FetchModel(id, assignment):
                    assert assignment == self.desired
                    self.fetches[id] = decision
                case CancelFetch(id):
                    del self.fetches[id]
                case StartEngine(id, assignment, file):
                    assert assignment is not None and file == file_of(assignment)
                    self.start(id, assignment, needed_by(assignment))
                case DialBalancers(id):
                    assert self.engines[id].is_loaded
                case ChangeEngine(id, assignment, paths):
                    assert paths == tuple(each.path for each in adapters_of(assignment))
                    self.changes.append((id, assignment))
                case RetireEngine(id):
                    self.stops(id)
                    self.engines[id].is_retiring = True
                case RecallEngine(id):
                    engine = self.engines[id]
                    assert engine.is_retiring and engine.is_loaded and not engine.is_dying
                    engine.is_retiring = engine.has_joined = False
                    engine.is_recalled = True
                case EndEngine(id):
                    self.stops(id)
                    self.engines[id].is_dying = True
                case RestartEngine():
                    raise AssertionError("only a pinned agent restarts its engine")
                case Exit():
                    raise AssertionError("nothing asked it to end")

    def start(self, id: EngineId, assignment: Assignment, needed: int) -> None:
        memory = sum(needed_by(each.serves) for each in self.engines.values())
        assert not self.engines or memory + needed <= MEMORY, "memory is short"
        self.engines[id] = Engine(SIZES[assignment.source], assignment)

    def stops(self, id: EngineId) -> None:
        """It may stop only if another serves, or for want of room, or of an assignment."""
        engine = self.engines[id]
        if not engine.has_joined or self.desired is None:
            return
        others = [each for key, each in self.engines.items() if key != id]
        if any(each.has_joined and not each.is_retiring for each in others):
            return
        needed = needed_by(self.desired)
        is_short = self.available is not None and self.available < needed
        held = engine.needed + sum(each.bytes for each in ADAPTERS.values())
        assert held + needed > MEMORY or is_short, "it could have been loaded beside"

    # ---- what always holds

    @invariant()
    def is_whole(self) -> None:
        self.assigner.check_integrity()

    @invariant()
    def tells_how_far_it_is(self) -> None:
        work = self.assigner.work
        if work is None:
            assert self.revision == 0
            return
        assert (work.revision, work.assignment) == (self.revision, self.desired)
        assert (work.phase == "failed") == bool(self.assigner.issues)
        if work.phase == "serving":
            loaded = [e for e in self.engines.values() if e.is_loaded and not e.is_dying]
            assert self.desired in [each.serves for each in loaded]

    @invariant()
    def somebody_is_connected(self) -> None:
        joined = [e for e in self.engines.values() if e.has_joined]
        there = [each for each in joined if not each.is_retiring and not each.is_dying]
        assert self.assigner.is_standing_in != bool(there)

    @rule()
    def settles(self) -> None:
        """With nothing in the way the assignment is served, unless an issue says why not."""
        for _ in range(100):
            if not self.one_step():
                break
        else:
            raise AssertionError("it never comes to rest")
        work = self.assigner.work
        if work is None or work.phase == "failed":
            return
        serving = [each.serves for each in self.engines.values()]
        assert serving == ([] if self.desired is None else [self.desired])

    def one_step(self) -> bool:
        if self.fetches:
            self.fetch_comes(min(self.fetches), None)
            return True
        if self.changes:
            self.changed(is_refused=False)
            return True
        return any(self.engine_goes_on(id) for id in sorted(self.engines))

    def teardown(self) -> None:
        decisions = self.assigner.stop()
        for each in decisions:
            if isinstance(each, RetireEngine):
                self.engines[each.id].is_retiring = True
        for id in sorted(self.engines):
            assert not any(isinstance(each, Exit) for each in decisions)
            decisions = self.assigner.ended(id, Quit(0), None, None, self.now)
        assert [each for each in decisions if isinstance(each, Exit)] == [Exit(0)]


TestMachine = Machine.TestCase
TestMachine.settings = settings(stateful_step_count=40)
