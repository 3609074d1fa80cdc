"""Several places of one host under any orders: they share its memory, and load one at a time."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from arriero.agent.models.model_file import ModelFile
from arriero.agent.supervision.assigner import Assigner
from arriero.agent.supervision.decisions import (
    CancelFetch,
    Decision,
    EndEngine,
    EngineId,
    FetchId,
    FetchModel,
    RetireEngine,
    StartEngine,
)
from arriero.agent.supervision.restarts import Quit
from arriero.agent.supervision.room import Room
from arriero.shared.models.assignments import Assign, Assignment

MEMORY = 100
SIZES: dict[str, int | None] = {
    "file:///small": 20,
    "file:///third": 33,
    "file:///half": 50,
    "file:///large": 90,
    "file:///unknown": None,
}
NUM_PLACES = 3
places = st.integers(0, NUM_PLACES - 1)


@dataclass(slots=True)
class Engine:
    place: int
    needed: int | None
    is_loaded: bool = False
    has_joined: bool = False
    is_leaving: bool = False


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.room = Room(MEMORY)
        ids = iter(range(1, 10**9))
        self.places = [Assigner(slots=4, room=self.room, ids=ids) for _ in range(NUM_PLACES)]
        self.desired: list[Assignment | None] = [None] * NUM_PLACES
        self.fetches: dict[tuple[int, FetchId], Assignment] = {}
        self.engines: dict[EngineId, Engine] = {}
        self.revision = 0
        self.now = 0.0

    @rule(place=places, source=st.none() | st.sampled_from(sorted(SIZES)))
    def assign(self, place: int, source: str | None) -> None:
        self.revision += 1
        desired = None if source is None else Assignment(name=source[8:], source=source)
        self.desired[place] = desired
        order = Assign(revision=self.revision, assignment=desired)
        self.carry_out(place, self.places[place].ordered(order))

    @rule(number=st.integers(0, 9))
    def a_file_comes(self, number: int) -> None:
        if self.fetches:
            place, id = sorted(self.fetches)[number % len(self.fetches)]
            source = self.fetches.pop((place, id)).source
            file = ModelFile(source, SIZES[source])
            self.carry_out(place, self.places[place].fetched(id, file, None, self.now))

    @rule(number=st.integers(0, 9))
    def an_engine_gets_on(self, number: int) -> None:
        """It loads, then joins the balancers; one that leaves ends."""
        if not self.engines:
            return
        id = sorted(self.engines)[number % len(self.engines)]
        engine = self.engines[id]
        assigner = self.places[engine.place]
        if engine.is_leaving:
            self.end(id, Quit(0))
        elif not engine.is_loaded:
            engine.is_loaded = True
            self.carry_out(engine.place, assigner.loaded(id, self.now))
        elif not engine.has_joined:
            engine.has_joined = True
            self.carry_out(engine.place, assigner.joined(id, self.now))

    @rule(number=st.integers(0, 9))
    def an_engine_crashes(self, number: int) -> None:
        if not self.engines:
            return
        id = sorted(self.engines)[number % len(self.engines)]
        engine = self.engines[id]
        others = {other: vars_of(each) for other, each in self.engines.items() if other != id}
        if not engine.is_leaving:
            engine.is_loaded = engine.has_joined = False
            self.carry_out(engine.place, self.places[engine.place].crashed(id, -6, None, self.now))
            same = {other: vars_of(self.engines[other]) for other in others}
            assert all(
                same[other] == was
                for other, was in others.items()
                if self.engines[other].place != engine.place
            ), "the engines of other places do not notice"

    @rule()
    def time_passes(self) -> None:
        self.now += 700.0
        for place, assigner in enumerate(self.places):
            self.carry_out(place, assigner.tick(self.now))

    def end(self, id: EngineId, quit: Quit) -> None:
        place = self.engines.pop(id).place
        self.carry_out(place, self.places[place].ended(id, quit, None, None, self.now))

    def carry_out(self, place: int, decisions: list[Decision]) -> None:
        for each in decisions:
            match each:
                case FetchModel(id, assignment):
                    self.fetches[place, id] = assignment
                case CancelFetch(id):
                    del self.fetches[place, id]
                case StartEngine(id, _, file):
                    assert file is not None
                    self.engines[id] = Engine(place, file.needed)
                case RetireEngine(id) | EndEngine(id):
                    self.engines[id].is_leaving = True
        for number, assigner in enumerate(self.places):
            if assigner.waits_for_room:
                changed = assigner.room_changed(None, self.now)
                if changed:
                    self.carry_out(number, changed)

    @invariant()
    def memory_is_never_short(self) -> None:
        if len(self.engines) > 1:
            needs = [each.needed for each in self.engines.values()]
            known = [each for each in needs if each is not None]
            assert len(known) == len(needs), "what is of unknown size is alone"
            assert sum(known) <= MEMORY

    @invariant()
    def each_is_whole(self) -> None:
        for each in self.places:
            each.check_integrity()

    def teardown(self) -> None:
        """What fits together is served together in the end, however it came about."""
        for _ in range(60):
            self.time_passes()
            for number in range(10):
                self.a_file_comes(number)
                self.an_engine_gets_on(number)
        sizes = [SIZES[each.source] for each in self.desired if each is not None]
        known = [each for each in sizes if each is not None]
        if len(sizes) == 1 or (len(known) == len(sizes) and sum(known) <= MEMORY):
            for place, desired in zip(self.places, self.desired, strict=True):
                work = place.work
                served = None if work is None or work.phase != "serving" else work.assignment
                assert served == desired, (work, place.issues)
        assert all(
            place.is_spare == (desired is None)
            for place, desired in zip(self.places, self.desired, strict=True)
        )


def vars_of(engine: Engine) -> tuple[bool, bool, bool]:
    return engine.is_loaded, engine.has_joined, engine.is_leaving


TestPlaces = Machine.TestCase
TestPlaces.settings = settings(stateful_step_count=30)
