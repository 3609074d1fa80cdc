"""Who is next: classes, callers, connections, models; and places that come true."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from arriero.balancer.fleet.caller import Caller
from arriero.balancer.fleet.requests.dispatch.fair_queue import (
    EVERY,
    STARVED_AFTER,
    FairQueue,
    Turns,
)
from arriero.balancer.fleet.requests.eligibility import Engine, QueueKey
from arriero.balancer.fleet.requests.request import Request
from arriero.shared.inference import PRIORITY_CLASSES, PriorityClass
from tests.balancer.fleet.builders import asking

KEYS: tuple[QueueKey, ...] = (None, "m")
ENGINE = Engine("m", "f")


def ask(
    caller: str = "a",
    kind: PriorityClass = "default",
    *,
    model: str | None = "m",
    connection: int | None = None,
    charge: int = 100,
) -> dict[str, Any]:
    named = Caller(address="::1", connection=connection) if connection else Caller(caller)
    return {"model": model, "kind": kind, "caller": named, "charge": charge}


HERE: dict[str, Request] = {}


def arrive(queue: FairQueue, number: int, asked: dict[str, Any], now: float = 0.0) -> Request:
    request = HERE[str(number)] = asking(str(number), **asked)
    request.arrival = number
    queue.arrived(request, now)
    return request


def queue_of(*asks: dict[str, Any]) -> FairQueue:
    queue = FairQueue()
    for number, each in enumerate(asks, 1):
        arrive(queue, number, each)
    queue.check_integrity()
    return queue


def start_all(queue: FairQueue, keys: Iterable[QueueKey] = KEYS, now: float = 0.0) -> str:
    """Every request for these starts; their ids in that order."""
    started = []
    keys = tuple(keys)
    while (id := queue.first(keys, now)) is not None:
        queue.started(id, keys, now)
        queue.check_integrity()
        started.append(str(id))
    return " ".join(started)


def test_callers_take_turns() -> None:
    assert start_all(queue_of(*[ask("a")] * 4, *[ask("b")] * 2)) == "1 5 2 6 3 4"


def test_connections_of_one_address_take_turns_and_have_one_share() -> None:
    queue = queue_of(
        *[ask(connection=1)] * 3, *[ask("key")] * 3, *[ask(connection=2)] * 2, ask(connection=3)
    )
    assert start_all(queue) == "1 4 7 5 9 6 2 8 3"


def test_a_key_is_one_caller_on_all_its_connections() -> None:
    first, second = (Caller("key", connection=number) for number in (1, 2))
    asks = [{"model": "m", "caller": caller} for caller in (first, first, second)]
    assert start_all(queue_of(*asks)) == "1 2 3"


def test_the_highest_class_is_first_but_for_the_share_of_those_that_starve() -> None:
    asks = [ask("a", "batch"), ask("b", "default"), ask("c", "interactive")]
    assert start_all(queue_of(*asks)) == "3 2 1"
    queue = queue_of(*[ask("a", "batch")] * 2, *[ask("b", "interactive")] * 8)
    started = start_all(queue, now=STARVED_AFTER).split()
    assert [started.index("1"), started.index("2")] == [EVERY - 1, 2 * EVERY - 1]


def test_who_wants_another_model_is_left_alone() -> None:
    queue = queue_of(ask(model="n"), ask(), ask(model=None), ask("b", model="n"))
    assert start_all(queue) == "2 3"
    assert queue.stranded({None, "m"}) == ["1", "4"]


def test_those_who_take_any_model_share_with_those_who_name_one() -> None:
    queue = queue_of(*[ask("a", model=None)] * 3, *[ask("b")] * 3)
    assert start_all(queue) == "1 4 2 5 3 6"


def test_what_comes_back_goes_before_what_its_caller_sent_since() -> None:
    queue = queue_of(*[ask("a")] * 3, ask("b"))
    for _ in range(2):
        queue.started(queue.first(KEYS, 0.0) or HERE["1"], KEYS, 0.0)
    queue.came_back(HERE["1"], ENGINE, 0.0)
    queue.check_integrity()
    assert queue.place(HERE["1"], KEYS) == 1
    assert start_all(queue, (*KEYS, ENGINE)) == "1 2 3"
    with pytest.raises(ValueError, match="waits already"):
        queue_of(ask()).came_back(HERE["1"], "m", 0.0)


def test_one_for_any_model_that_comes_back_for_an_engine_is_first() -> None:
    queue = queue_of(ask(model=None), *[ask("b")] * 2)
    queue.started(HERE["1"], KEYS, 0.0)
    queue.came_back(HERE["1"], ENGINE, 0.0)
    queue.check_integrity()
    assert start_all(queue, (*KEYS, ENGINE)) == "1 2 3"


def test_what_it_really_took_counts() -> None:
    queue = queue_of(*[ask("a", charge=200)] * 3, *[ask("b", charge=100)] * 4)
    queue.started(HERE["1"], KEYS, 0.0)
    queue.ended(HERE["1"], 100)
    assert start_all(queue) == "4 2 5 6 3 7"


def test_another_place_to_wait_keeps_the_turn() -> None:
    queue = queue_of(*[ask("a")] * 2, ask("b"))
    queue.changed(HERE["1"], ENGINE, 0.0)
    queue.check_integrity()
    assert (start_all(queue), start_all(queue, [ENGINE])) == ("3 2", "1")


def test_a_renamed_request_goes_before_those_that_came_later() -> None:
    queue = queue_of(ask(model="old"), ask(), ask("b"))
    queue.renamed(HERE["1"], "m", 0.0)
    queue.check_integrity()
    assert start_all(queue) == "1 2 3"


ASKS = st.builds(
    ask,
    caller=st.sampled_from("ab"),
    kind=st.sampled_from(PRIORITY_CLASSES),
    model=st.sampled_from([None, "m", "m"]),
    connection=st.sampled_from([None, None, 1, 2]),
    charge=st.integers(1, 40),
)


@given(st.lists(ASKS, max_size=20), st.integers(0, 8))
def test_places_come_true(asks: list[dict[str, Any]], num_before: int) -> None:
    """With whatever started before: those that wait start in the order of their places."""
    queue = queue_of(*asks)
    for _ in range(num_before):
        if (id := queue.first(KEYS, 0.0)) is not None:
            queue.started(id, KEYS, 0.0)
    waiting = sorted(queue)
    places = {queue.place(id, KEYS): id for id in waiting}
    assert sorted(places) == list(range(1, len(waiting) + 1))
    assert start_all(queue).split() == [str(places[place]) for place in sorted(places)]


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=30))
def test_of_requests_that_are_alike_nobody_gets_two_more_than_another(callers: list[str]) -> None:
    queue = queue_of(*map(ask, callers))
    got = dict.fromkeys(callers, 0)
    for id in start_all(queue).split():
        got[callers[int(id) - 1]] += 1
        waits = [each for each in got if got[each] < callers.count(each)]
        assert all(got[one] <= got[other] + 1 for one in got for other in waits)


class FairQueueMachine(RuleBasedStateMachine):
    """Requests of a few callers for two models come, start, come back, change and end."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = FairQueue()
        self.waiting: dict[Request, QueueKey] = {}
        self.running: dict[Request, QueueKey] = {}
        self.fresh: list[Request] = []
        self.now = 0.0
        self.num = 0

    @rule(asked=ASKS, model=st.sampled_from([None, "m", "n"]))
    def arrives(self, asked: dict[str, Any], model: str | None) -> None:
        self.num += 1
        id = arrive(self.queue, self.num, {**asked, "model": model}, self.now)
        self.waiting[id] = model
        self.fresh.append(id)

    @precondition(lambda self: self.waiting)
    @rule(model=st.sampled_from("mn"), seconds=st.sampled_from([0.0, 1.0, 20.0]))
    def starts(self, model: str, seconds: float) -> None:
        self.now += seconds
        keys = (None, model, Engine(model, "f"))
        id = self.queue.first(keys, self.now)
        fitting = [each for each, key in self.waiting.items() if key in keys]
        assert (id is None) == (not fitting), "slots never idle with work waiting"
        if id is None:
            return
        assert id in fitting
        if id in self.fresh:
            self.in_order(id)
            self.fresh.remove(id)
        self.queue.started(id, keys, self.now)
        self.running[id] = self.waiting.pop(id)

    def in_order(self, id: Request) -> None:
        """Nothing that its caller sent before, alike, is left."""
        for other in self.fresh[: self.fresh.index(id)]:
            same = (id.caller, id.kind) == (other.caller, other.kind)
            assert not (same and self.waiting[id] == self.waiting[other]), "out of order"

    @precondition(lambda self: self.running)
    @rule(data=st.data(), charge=st.integers(1, 99), comes_back=st.booleans())
    def ends(self, data: st.DataObject, charge: int, comes_back: bool) -> None:
        id = data.draw(st.sampled_from(sorted(self.running)))
        key = self.running.pop(id)
        if not comes_back:
            self.queue.ended(id, charge)
            return
        if isinstance(key, str) and data.draw(st.booleans()):
            key = Engine(key, "f")
        elif key is None and data.draw(st.booleans()):
            key = Engine("m", "f")
        self.queue.came_back(id, key, self.now)
        self.waiting[id] = key

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def withdraws(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.waiting)))
        del self.waiting[id]
        if id in self.fresh:
            self.fresh.remove(id)
        self.queue.ended(id, 0)

    @invariant()
    def it_holds_together(self) -> None:
        self.queue.check_integrity()
        assert len(self.queue) == len(self.waiting)
        served = {None, "m", "n", Engine("m", "f"), Engine("n", "f")}
        for id in self.waiting:
            assert 1 <= self.queue.place(id, served) <= len(self.waiting)


TestFairQueueMachine = FairQueueMachine.TestCase
TestFairQueueMachine.settings = settings(stateful_step_count=30)


BOTH: list[PriorityClass] = ["interactive", "batch"]
POOL = ("m",)


def waiting(*kinds: PriorityClass, since: float = 0.0) -> Turns:
    turns = Turns()
    for kind in kinds:
        turns.waits(kind, "m", since)
    return turns


def starts(turns: Turns, kinds: list[PriorityClass], num: int, now: float) -> list[PriorityClass]:
    """So many starts while all of `kinds` wait."""
    started = []
    for _ in range(num):
        kind = turns.next(kinds, POOL, now)
        started.append(kind)
        turns.started(kind, [each for each in kinds if each != kind], POOL, now)
    return started


def test_the_highest_class_is_first() -> None:
    turns = waiting("interactive", "batch")
    assert starts(turns, BOTH, 9, now=STARVED_AFTER - 1) == ["interactive"] * 9


def test_a_class_that_starves_gets_one_start_of_a_few() -> None:
    turns = waiting("interactive", "batch")
    started = starts(turns, BOTH, 3 * EVERY, now=STARVED_AFTER)
    assert started == [*["interactive"] * (EVERY - 1), "batch"] * 3


def test_who_starts_with_nobody_before_it_does_not_starve() -> None:
    turns = waiting("interactive", "batch")
    turns.started("batch", [], POOL, STARVED_AFTER)
    assert starts(turns, BOTH, 9, now=STARVED_AFTER + 1) == ["interactive"] * 9


def test_every_lower_class_has_a_share() -> None:
    kinds: list[PriorityClass] = ["interactive", "default", "batch"]
    started = starts(waiting(*kinds), kinds, 40, now=STARVED_AFTER)
    assert all(started.count(kind) >= len(started) // EVERY - 1 for kind in kinds)


def test_other_models_starve_on_their_own() -> None:
    turns = waiting("interactive", "batch")
    turns.waits("batch", "n", 0.0)
    starts(turns, BOTH, EVERY - 1, now=STARVED_AFTER)
    assert turns.next(BOTH, ("n",), STARVED_AFTER) == "interactive"
    assert turns.next(BOTH, ("m",), STARVED_AFTER) == "batch"
    turns.empty("batch", "m")
    turns.check_integrity({("interactive", "m"), ("batch", "n")})
