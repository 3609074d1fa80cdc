"""Hosts that serve several models: memory is shared, and what nobody uses makes room."""

from dataclasses import dataclass, field, replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from arriero.balancer.control.controller import Controller
from arriero.balancer.control.demand import (
    IDLE,
    IN_TURN,
    MIN_TURN,
    PATIENCE,
    PRELOADED,
    RETURN,
    WAITING,
    Demand,
)
from arriero.balancer.control.desired_state import DesiredModel
from arriero.balancer.control.members import AgentReport, member_of
from arriero.balancer.control.placement import Requirement, place
from arriero.shared.inference import AgentId
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import (
    Assign,
    Assignment,
    Device,
    HostFacts,
    MemoryPart,
    Phase,
    Work,
)
from tests.balancer.control.builders import report, state, wished

SIZES: dict[str, int | None] = {"s": 20, "t": 30, "h": 50, "l": 90, "u": None, "x": 30, "y": 28}


PARTS = {
    "s": {"A": 20},
    "t": {"B": 30},
    "h": {"A": 25, "B": 25},
    "l": {"A": 45, "B": 45},
    "x": {"A": 30},
    "y": {"A": 28},
}
"""The same sizes, where a host has two devices of 50 each."""


@dataclass
class Place:
    id: AgentId
    revision: int = 0
    told: Assignment | None = None
    phase: Phase = "waiting"
    serves: Assignment | None = None
    held: dict[str, int] = field(default_factory=dict)
    num_running: int = 0
    used_at: float = -inf
    issues: tuple[Issue, ...] = ()
    inbox: list[Assign] = field(default_factory=list)

    @property
    def is_finishing(self) -> bool:
        """Whether it takes no new requests for what it still has."""
        return self.serves is not None and self.phase == "draining"


class Host:
    """An agent with places, as `agent/supervision` has them."""

    def __init__(
        self, name: str, memory: int = 100, most: int = 4, *, has_devices: bool = False
    ) -> None:
        self.name = name
        self.memory = memory
        self.devices = {"A": memory // 2, "B": memory // 2} if has_devices else {}
        self.most = most
        self.bad: set[str] = set()
        self._num_places = 0
        self.places: list[Place] = []
        self._have_a_spare_one()

    def _have_a_spare_one(self) -> None:
        spare = [each for each in self.places if each.told is None and each.serves is None]
        for each in spare[1:]:
            self.places.remove(each)
        if not spare and len(self.places) < self.most:
            self._num_places += 1
            self.places.append(Place(AgentId(f"{self.name}{self._num_places}")))

    def serving(self) -> set[str]:
        return {each.serves.name for each in self.places if each.serves is not None}

    def ready(self) -> set[str]:
        """The models that take new requests."""
        return {each.serves.name for each in self.places if each.serves and not each.is_finishing}

    def place_of(self, model: str) -> Place:
        return next(each for each in self.places if each.serves and each.serves.name == model)

    def reports(self) -> list[AgentReport]:
        return [self._report(each) for each in self.places]

    def _report(self, one: Place) -> AgentReport:
        work = None
        if one.revision:
            is_known = one.phase not in ("waiting", "fetching") and one.told is not None
            needed = SIZES[one.told.name] if is_known and one.told is not None else None
            claims = self._parts(one.told.name) if is_known and one.told is not None else ()
            work = Work(
                revision=one.revision,
                assignment=one.told,
                phase=one.phase,
                needed=needed,
                claims=claims,
            )
        return AgentReport(
            id=one.id,
            link=1,
            host=AgentId(self.name),
            name=self.name,
            labels={},
            facts=self._facts(),
            work=work,
            serves=None if one.serves is None or one.is_finishing else one.serves.name,
            finishing=one.serves.name if one.serves is not None and one.is_finishing else None,
            held={} if one.serves is None else one.held,
            slots=4,
            issues=one.issues,
            num_running=one.num_running,
            used_at=one.used_at,
        )

    def _facts(self) -> HostFacts:
        devices = tuple(Device(name=name, memory=size) for name, size in self.devices.items())
        return HostFacts(memory=0 if devices else self.memory, devices=devices)

    def _parts(self, model: str) -> tuple[MemoryPart, ...]:
        parts = PARTS.get(model, {}) if self.devices else {}
        return tuple(MemoryPart(device=name, bytes=size) for name, size in parts.items())

    def left(self, device: str, beside: Place | None = None) -> int:
        """What is free of a device, with what is `beside`, which makes room for its next one."""
        others = (each for each in self.places if each.serves and each is not beside)
        taken = (each.held.get(device, 0) for each in others)
        return self.devices[device] - sum(taken)

    def act(self) -> None:
        """Each place does the next thing that it can."""
        for one in self.places:
            while one.inbox:
                order = one.inbox.pop(0)
                one.revision, one.told, one.issues = order.revision, order.assignment, ()
                one.phase = "draining" if order.assignment is None else "fetching"
                if order.assignment is not None and one.serves == order.assignment:
                    one.phase = "serving"
        for one in self.places:
            self._go_on(one)
        self._have_a_spare_one()

    def _go_on(self, one: Place) -> None:
        if one.told is None:
            if not one.num_running:
                one.serves = None
                one.phase = "waiting"
        elif one.phase == "fetching":
            one.phase = "draining"
        elif one.serves is not None and one.num_running:
            return  # it drains
        elif one.phase == "draining" and self._has_room(one, one.told):
            if one.told.name in self.bad:
                one.phase, one.issues = "failed", (Issue(code="load_failed", message="bad"),)
                return
            one.held = {
                part.device: min(part.bytes, self.left(part.device, one))
                for part in self._parts(one.told.name)
            }
            one.serves, one.phase = one.told, "serving"

    def _has_room(self, one: Place, model: Assignment) -> bool:
        others = [each.serves.name for each in self.places if each.serves and each is not one]
        needs = [SIZES[name] for name in (model.name, *others)]
        known = [each for each in needs if each is not None]
        if self.devices and not model.takes_what_is_left:
            parts = self._parts(model.name)
            if others and any(part.bytes > self.left(part.device, one) for part in parts):
                return False
        return not others or (len(known) == len(needs) and sum(known) <= self.memory)


class World:
    def __init__(self, *hosts: Host) -> None:
        self.controller = Controller(drain_timeout=30.0)
        self.hosts = hosts
        self.now = 100.0
        self.waiting: dict[str, float] = {}

    def wish(self, *models: DesiredModel) -> None:
        self.controller.desire(state(*models))

    def look(self) -> dict[str, str | None]:
        reports = [each for host in self.hosts for each in host.reports()]
        demands = {name: Demand(1, since) for name, since in self.waiting.items()}
        told = self.controller.reconcile(reports, demands, self.now)
        self.controller.check_integrity()
        places = {each.id: each for host in self.hosts for each in host.places}
        for order in told:
            places[order.agent].inbox.append(order.order)
        return {
            str(each.agent): each.order.assignment.name if each.order.assignment else None
            for each in told
        }

    def rest(self) -> None:
        """Until nobody does anything any more, and requests run that can."""
        for _ in range(100):
            before = self._sight()
            told = self.look()
            for host in self.hosts:
                host.act()
            if not told and before == self._sight():
                return
        raise AssertionError("it never comes to rest")

    def _sight(self) -> list[AgentReport]:
        return [each for host in self.hosts for each in host.reports()]

    def use(self, model: str) -> None:
        """A request comes and is answered."""
        self.waiting[model] = self.now
        self.rest()
        served = [host for host in self.hosts if model in host.serving()]
        assert served, f"{model} is not served"
        del self.waiting[model]
        served[0].place_of(model).used_at = self.now
        self.now += 3.0
        self.look()


def on_demand(*names: str) -> list[DesiredModel]:
    return [wished(name, preload=False, replicas=1) for name in names]


def test_models_are_loaded_side_by_side_while_memory_lasts() -> None:
    host = Host("a")
    world = World(host)
    world.wish(*on_demand("s", "t", "h"))
    for name in "sth":
        world.use(name)
    assert host.serving() == {"s", "t", "h"}
    assert len(host.places) == 4, "one more is spare"


def test_the_least_recently_used_make_room_and_no_more_of_them_than_have_to() -> None:
    host = Host("a")
    world = World(host)
    world.wish(*on_demand("s", "t", "h", "l"), wished("x", preload=False, replicas=1))
    for name in ("t", "h", "s"):
        world.use(name)
    world.use("x")
    assert host.serving() == {"h", "s", "x"}
    world.use("l")
    assert host.serving() == {"l"}


def test_only_what_lies_on_the_device_that_is_asked_for_makes_room() -> None:
    host = Host("a", has_devices=True)
    world = World(host)
    world.wish(*on_demand(*"stxy"))
    for name in "tsx":
        world.use(name)
    assert host.serving() == {"t", "s", "x"}, "20 and 30 of A, 30 of B"
    world.use("s")
    world.use("y")
    assert host.serving() == {"t", "s", "y"}, "`t` was used first, but lies on B"


def test_what_is_preloaded_stays_and_others_take_what_it_leaves_of_a_device() -> None:
    host = Host("a", has_devices=True)
    world = World(host)
    world.wish(wished("x", replicas=1), *on_demand(*"sty"))
    world.rest()
    for name in "st":
        world.use(name)
    world.use("y")
    assert host.serving() == {"x", "t", "y"}, "`s` makes room, which is too little"
    assert host.place_of("y").held == {"A": 20}
    world.use("s")
    assert host.serving() == {"x", "t", "s"}
    assert host.place_of("s").held == {"A": 20}


def test_models_that_are_preloaded_do_not_push_each_other_out() -> None:
    host = Host("a", has_devices=True)
    world = World(host)
    world.wish(wished("x", replicas=1), wished("y", replicas=1), wished("t", replicas=1))
    seen: set[str] = set()
    for _ in range(20):
        world.look()
        host.act()
        assert seen <= host.serving(), "what is loaded stays"
        seen |= host.serving()
    assert seen == {"x", "y", "t"}
    assert host.left("A") == 0


def test_what_has_requests_or_is_pinned_by_preload_stays() -> None:
    host = Host("a")
    world = World(host)
    world.wish(wished("s", replicas=1), *on_demand("t", "h", "l"))
    world.rest()
    world.use("h")
    world.use("t")
    host.place_of("h").num_running = 1
    world.waiting["l"] = world.now
    world.rest()
    assert host.serving() == {"s", "h", "t"}, "`l` never fits beside `s`"
    world.now += MIN_TURN
    world.rest()
    assert {"s"} <= host.serving()


def test_a_model_of_unknown_size_is_served_alone() -> None:
    host = Host("a")
    world = World(host)
    world.wish(*on_demand("s", "u"))
    world.use("s")
    world.use("u")
    assert host.serving() == {"u"}
    world.use("s")
    assert host.serving() == {"s"}


def test_models_that_are_not_in_use_make_room_and_take_none_from_each_other() -> None:
    hosts = [Host(name, most=2, has_devices=True) for name in "abc"]
    world = World(*hosts)
    world.wish(*on_demand(*"sthlu"))
    world.waiting = dict.fromkeys("lth", world.now)
    world.rest()
    assert [host.serving() for host in hosts] == [{"t"}, {"h"}, {"l"}]
    world.waiting = {"s": world.now}
    world.rest()
    world.waiting = {"u": world.now}
    loaded: set[str | None] = set()
    for _ in range(10):
        world.now += 7.0
        loaded |= {*world.look().values()}
        for host in hosts:
            host.act()
    assert loaded <= {"u", None}
    assert [host.serving() for host in hosts] == [{"s", "t"}, {"u"}, {"l"}]


def test_a_host_with_room_is_chosen_before_one_where_something_has_to_go() -> None:
    crowded, free = Host("a"), Host("b")
    world = World(crowded, free)
    world.wish(*on_demand("l", "h", "t"))
    for name in "lht":
        world.use(name)
    assert {frozenset(host.serving()) for host in world.hosts} == {
        frozenset({"l"}),
        frozenset({"h", "t"}),
    }


def test_a_host_that_cannot_load_a_model_does_not_try_at_another_place() -> None:
    host = Host("a")
    host.bad = {"s"}
    world = World(host)
    world.wish(*on_demand("s", "t"))
    world.use("t")
    world.waiting["s"] = world.now
    world.rest()
    assert [each.phase for each in host.places if each.told and each.told.name == "s"] in (
        [],
        ["failed"],
    )
    assert host.serving() == {"t"}
    assert world.controller.statuses["s"].status == "failed"


@pytest.mark.parametrize("has_devices", [False, True])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_what_drains_for_those_who_have_gone_serves_again(most: int, has_devices: bool) -> None:
    host = Host("a", most=most, has_devices=has_devices)
    world = World(host)
    world.wish(*on_demand("l", "h"))
    world.use("l")
    world.now += MIN_TURN
    one = host.place_of("l")
    one.num_running = 1
    world.waiting["h"] = world.now
    world.now += PATIENCE
    world.rest()
    assert (host.serving(), host.ready()) == ({"l"}, set())
    world.waiting["l"] = world.now
    world.rest()
    assert host.ready() == set(), "it is the other one's turn"
    del world.waiting["h"]
    world.rest()
    assert host.ready() == set(), "they may ask again"
    world.now += RETURN
    world.rest()
    assert (host.ready(), one.num_running) == ({"l"}, 1)
    assert {each.told.name for each in host.places if each.told is not None} == {"l"}
    world.waiting = {"h": world.now}
    world.now += PATIENCE
    world.rest()
    assert host.ready() == set(), "its turn is as long over as it was"
    one.num_running = 0
    world.rest()
    assert host.ready() == {"h"}


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[Requirement], list[AgentReport]]:
    names = draw(st.lists(st.sampled_from("abcdef"), unique=True, min_size=1))
    reports = []
    for host in ("x", "y", "z")[: draw(st.integers(1, 3))]:
        held = draw(st.lists(st.sampled_from([*names, None]), unique=True, max_size=4))
        memory = draw(st.integers(10, 100))
        for number, name in enumerate([*held, None]):
            told = None if name is None else wished(name).assignment
            one = report(f"{host}{number}", told=told, facts=HostFacts(memory=memory))
            reports.append(replace(one, host=AgentId(host)))
    requirements = []
    for name in names:
        needed = draw(st.sampled_from([0, 10, 20, 30, 60, inf]))
        fits = [each.id for each in reports if needed in (0, inf) or needed <= each.memory]
        requirements.append(
            Requirement(
                model=name,
                at_least=draw(st.integers(0, 3)),
                eligible=frozenset(fits),
                takes_rest=draw(st.booleans()),
                tier=draw(st.sampled_from([PRELOADED, IN_TURN, WAITING, IDLE])),
                needed=needed,
                used_at=draw(st.floats(0, 100)),
            )
        )
    return requirements, reports


@given(fleets())
def test_a_host_never_gets_more_than_it_holds_and_no_model_twice(
    fleet: tuple[list[Requirement], list[AgentReport]],
) -> None:
    requirements, reports = fleet
    placement = place(requirements, [member_of(each, None) for each in reports])
    needs = {each.model: each.needed for each in requirements}
    for host in {each.host for each in reports}:
        own = [each for each in reports if each.host == host]
        models = [name for each in own if (name := placement.models[each.id]) is not None]
        assert len(models) == len(set(models))
        assert len(models) <= 1 or sum(needs[name] for name in models) <= own[0].memory
    for each in requirements:
        held = sum(model == each.model for model in placement.models.values())
        assert held + placement.missing.get(each.model, 0) >= each.at_least


class Machine(RuleBasedStateMachine):
    """Requests come and go for models that do not all fit: nobody waits for ever."""

    @initialize(num=st.integers(1, 3), most=st.integers(1, 4), has_devices=st.booleans())
    def start(self, num: int, most: int, has_devices: bool) -> None:
        self.hosts = [Host(name, most=most, has_devices=has_devices) for name in "abc"[:num]]
        self.world = World(*self.hosts)
        self.world.wish(*on_demand(*"sthlu"))

    @rule(model=st.sampled_from("sthlu"))
    def a_request_comes(self, model: str) -> None:
        self.world.waiting.setdefault(model, self.world.now)

    @rule(model=st.sampled_from("sthlu"))
    def the_client_goes(self, model: str) -> None:
        self.world.waiting.pop(model, None)

    @rule()
    def everybody_acts(self) -> None:
        self.world.look()
        for host in self.hosts:
            host.act()

    @rule(seconds=st.sampled_from([0.5, 3.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @rule(model=st.sampled_from("sthlu"))
    def requests_start(self, model: str) -> None:
        for host in self.hosts:
            if model in host.ready() and self.world.waiting.pop(model, None) is not None:
                one = host.place_of(model)
                one.num_running, one.used_at = 1, self.world.now

    @rule(model=st.sampled_from("sthlu"))
    def requests_end(self, model: str) -> None:
        for host in self.hosts:
            if model in host.serving():
                one = host.place_of(model)
                one.num_running, one.used_at = 0, self.world.now

    @invariant()
    def memory_is_enough(self) -> None:
        for host in self.hosts:
            needs = [SIZES[name] for name in host.serving()]
            assert len(needs) <= 1 or sum(each or inf for each in needs) <= host.memory
            assert all(host.left(device) >= 0 for device in host.devices)
            assert all(
                one.held == PARTS[one.serves.name]
                for one in host.places
                if one.serves is not None and one.held
            ), "none of them is preloaded, so each has what it claims"

    def teardown(self) -> None:
        """When all requests end at some time, each that waits is served at some time."""
        if not hasattr(self, "world"):
            return
        for _ in range(60):
            for model in "sthlu":
                self.requests_start(model)
                self.requests_end(model)
            self.world.now += 7.0
            self.everybody_acts()
        assert not self.world.waiting, self.world.controller.statuses


TestSeveralModels = Machine.TestCase
TestSeveralModels.settings = settings(stateful_step_count=30)
