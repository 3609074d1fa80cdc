from collections.abc import Iterator
from dataclasses import replace
from math import inf

import pytest

from arriero.balancer.control.demand import IDLE, IN_TURN, WAITING
from arriero.balancer.control.members import AgentReport, Member, member_of
from arriero.balancer.control.placement import (
    HOLD,
    MAX_CLAIMS,
    MAX_KNOWN,
    REDIAL,
    Departures,
    MemoryNeeds,
    Placement,
    Requirement,
    place,
)
from arriero.shared.inference import AgentId
from arriero.shared.models.assignments import Assignment, Device, HostFacts, MemoryPart, Work
from tests.balancer.control.builders import GIB, report, wished


def agent(name: str, model: str | None = None, *, num_running: int = 0) -> Member:
    told = None if model is None else wished(model).assignment
    return member_of(report(name, told=told, num_running=num_running), None)


def requirement(model: str, at_least: int, *eligible: str, **fields: object) -> Requirement:
    ids = frozenset(map(AgentId, eligible))
    return Requirement(model=model, at_least=at_least, eligible=ids, **fields)  # type: ignore[arg-type]


def models(placement: Placement) -> dict[str, str | None]:
    return {str(id): model for id, model in placement.models.items()}


def test_agents_keep_what_they_have() -> None:
    members = [agent("a", "n"), agent("b", "m"), agent("c")]
    placement = place(
        [requirement("m", 1, "a", "b", "c"), requirement("n", 1, "a", "b", "c")], members
    )
    assert models(placement) == {"a": "n", "b": "m", "c": None}


def test_an_idle_agent_is_taken_before_one_that_another_model_needs() -> None:
    members = [agent("a", "n"), agent("b")]
    placement = place([requirement("m", 1, "a", "b"), requirement("n", 1, "a", "b")], members)
    assert models(placement) == {"a": "n", "b": "m"}


def test_what_a_model_has_too_many_of_is_taken_before_what_it_needs() -> None:
    members = [agent("a", "n"), agent("b", "o"), agent("c", "o")]
    everybody = ("a", "b", "c")
    requirements = [
        requirement("m", 1, *everybody),
        requirement("n", 1, *everybody),
        requirement("o", 1, *everybody),
    ]
    assert models(place(requirements, members))["a"] == "n"


def test_models_take_turns() -> None:
    members = [agent(name) for name in "abc"]
    placement = place([requirement("m", 3, *"abc"), requirement("n", 2, *"abc")], members)
    assert sorted(map(str, placement.models.values())) == ["m", "m", "n"]
    assert placement.missing == {"m": 1, "n": 1}


def test_a_lower_tier_comes_first() -> None:
    members = [agent("a", "n")]
    placement = place([requirement("n", 1, "a", tier=3), requirement("m", 1, "a", tier=2)], members)
    assert models(placement) == {"a": "m"}


def test_a_new_place_of_a_host_does_not_take_over_what_another_one_has() -> None:
    """Places have random ids: that of the new one may be smaller or larger."""

    def place_of(host: str, name: str, model: str | None) -> Member:
        member = agent(name, model)
        return replace(member, report=replace(member.report, host=AgentId(host)))

    for old, new in (("c", "b"), ("b", "c")):
        members = [agent("z", "m"), place_of("host", old, "m"), place_of("host", new, None)]
        placement = place([requirement("m", 1, *"bcz", takes_rest=True)], members)
        assert models(placement) == {"z": "m", old: "m", new: None}


def test_the_rest_goes_to_models_that_take_all_and_stays_where_it_is() -> None:
    members = [agent("a", "m"), agent("b", "m"), agent("c")]
    requirements = [
        requirement("m", 1, *"abc", takes_rest=True),
        requirement("n", 1, *"abc", takes_rest=True),
    ]
    assert models(place(requirements, members)) == {"a": "m", "b": "m", "c": "n"}


def test_the_rest_is_shared_evenly() -> None:
    members = [agent(name) for name in "abcdef"]
    requirements = [requirement(model, 1, *"abcdef", takes_rest=True) for model in ("m", "n", "o")]
    placed = sorted(map(str, place(requirements, members).models.values()))
    assert placed == ["m", "m", "n", "n", "o", "o"]


def test_an_agent_that_few_can_replace_is_left_to_those_who_need_it() -> None:
    members = [agent("a"), agent("b")]
    placement = place([requirement("m", 1, "a", "b"), requirement("n", 1, "a")], members)
    assert models(placement) == {"a": "n", "b": "m"}


def test_a_model_moves_where_only_that_makes_room() -> None:
    members = [agent("a", "m"), agent("b")]
    placement = place([requirement("m", 1, "a", "b"), requirement("n", 1, "a")], members)
    assert models(placement) == {"a": "n", "b": "m"}
    assert not placement.missing


def test_of_several_the_idlest_gives_up_its_model() -> None:
    members = [agent("a", "m", num_running=3), agent("b", "m"), agent("c", "m", num_running=1)]
    assert models(place([requirement("m", 2, *"abc")], members)) == {"a": "m", "b": None, "c": "m"}


def test_places_of_agents_that_went_a_moment_ago_are_kept() -> None:
    placement = place([requirement("m", 2, "a", "b", reserved=1)], [agent("a", "m"), agent("b")])
    assert models(placement) == {"a": "m", "b": None}
    assert not placement.missing


def test_of_a_model_that_nobody_has_a_spare_agent_takes_the_first_place() -> None:
    requirements = [requirement("m", 2, "a", "b", "c", reserved=2, is_gone=True)]
    placement = place(requirements, [agent("a"), agent("b")])
    assert sorted(map(str, models(placement).values())) == ["None", "m"]
    assert not placement.missing


def test_no_other_model_gives_up_an_agent_for_a_place_that_is_kept() -> None:
    gone = requirement("m", 1, "a", "b", reserved=1, is_gone=True)
    placement = place([gone, requirement("n", 1, "a")], [agent("a", "n"), agent("b", "o")])
    assert models(placement) == {"a": "n", "b": None}
    assert not placement.missing


class Counted(frozenset[AgentId]):
    """Counts how many agents are looked at."""

    num_looks = 0

    def __iter__(self) -> Iterator[AgentId]:
        for agent in super().__iter__():
            self.num_looks += 1
            yield agent


def test_a_place_does_not_cost_a_look_at_all_agents() -> None:
    names = [f"{number:03}" for number in range(200)]
    eligible = Counted(map(AgentId, names))
    requirements = [Requirement(model=model, at_least=90, eligible=eligible) for model in "mn"]
    placement = place(requirements, [agent(name) for name in names])
    assert not placement.missing
    assert eligible.num_looks <= 6 * len(names)


MODEL = wished("m", slots=4).assignment


def told(assignment: Assignment, needed: int | None) -> AgentReport:
    return report("a", work=Work(revision=1, assignment=assignment, needed=needed))


def test_what_one_agent_estimated_holds_for_the_others() -> None:
    needs = MemoryNeeds()
    small = report("b", facts=HostFacts(memory=4 * GIB))
    assert needs.fits(MODEL, small)
    needs.learn(told(MODEL, 5 * GIB))
    assert needs.of(MODEL) == 5 * GIB
    assert not needs.fits(MODEL, small)
    assert needs.fits(MODEL, report("c", facts=HostFacts(memory=5 * GIB)))
    assert needs.fits(MODEL, report("d")), "an agent that does not say what it has may try"


def test_an_agent_that_holds_the_least_of_a_model_may_have_it() -> None:
    needs = MemoryNeeds()
    work = Work(revision=1, assignment=MODEL, phase="failed", needed=5 * GIB, least=3 * GIB)
    needs.learn(report("a", work=work))
    assert (needs.of(MODEL), needs.least_of(MODEL)) == (5 * GIB, 3 * GIB)
    assert needs.fits(MODEL, report("b", facts=HostFacts(memory=3 * GIB)))
    assert not needs.fits(MODEL, report("c", facts=HostFacts(memory=3 * GIB - 1)))


def test_what_an_agent_serves_meanwhile_tells_nothing_of_another_model() -> None:
    needs = MemoryNeeds()
    for phase in ("fetching", "failed"):
        work = Work(revision=2, assignment=MODEL, phase=phase, needed=5 * GIB)
        needs.learn(report("a", work=work, serves="other"))
        assert needs.of(MODEL) is None


def test_other_slots_are_another_need() -> None:
    needs = MemoryNeeds()
    needs.learn(told(MODEL, 5 * GIB))
    assert needs.of(wished("m", slots=8).assignment) is None
    assert needs.of(wished("m", slots=4, chat_template="t").assignment) == 5 * GIB


def test_it_remembers_so_many() -> None:
    needs = MemoryNeeds()
    for number in range(MAX_KNOWN + 1):
        needs.learn(told(wished("m", number).assignment, 1))
    needs.learn(told(MODEL, None))
    assert needs.of(wished("m", 0).assignment) is None
    assert needs.of(wished("m", MAX_KNOWN).assignment) == 1


def host(id: str, *, name: str = "host", model: str | None = "m") -> Member:
    told = None if model is None else wished(model).assignment
    return member_of(replace(report(id, told=told), name=name), None)


def look(departures: Departures, now: float, *members: Member) -> dict[str, int]:
    departures.update({member.id: member for member in members}, now)
    return dict(departures.reserved())


def test_the_place_of_an_agent_that_has_gone_is_kept_for_a_while() -> None:
    departures = Departures()
    assert look(departures, 0.0, host("a"), host("b", model=None)) == {}
    assert look(departures, 1.0) == {"m": 1}
    assert departures.next_change(1.0) == 1.0 + REDIAL
    assert departures.next_change(1.0 + REDIAL) == 1.0 + HOLD
    assert look(departures, 1.0 + HOLD) == {}
    assert departures.next_change(1.0 + HOLD) is None


def test_an_agent_that_is_gone_for_a_moment_may_only_dial_again() -> None:
    departures = Departures()
    look(departures, 0.0, host("a"))
    look(departures, 1.0)
    assert departures.redialling(1.0) == {"m"}
    assert departures.redialling(1.0 + REDIAL) == set()


def test_an_agent_that_is_back_has_its_place() -> None:
    departures = Departures()
    look(departures, 0.0, host("a"))
    look(departures, 1.0)
    assert look(departures, 2.0, host("a")) == {}


def test_an_agent_that_was_started_again_has_another_id_and_the_same_name() -> None:
    departures = Departures()
    look(departures, 0.0, host("a"), host("b", name="other"))
    look(departures, 1.0)
    new = AgentId("a2")
    assert look(departures, 2.0, host(new, model=None)) == {"m": 1}


def test_what_a_model_claims_is_known_of_each_host() -> None:
    needs = MemoryNeeds()
    told = wished("m").assignment
    parts = (MemoryPart(device="CUDA0", bytes=7),)
    work = Work(revision=1, assignment=told, phase="draining", needed=9, claims=parts)
    needs.learn(replace(report("a"), work=work, host=AgentId("x")))
    hosts = [member_of(replace(report("a"), host=AgentId(name)), None) for name in "xy"]
    assert needs.claims(told, hosts) == {"x": {"CUDA0": 7}}
    assert needs.claims(wished("n").assignment, hosts) == {}
    for number in range(MAX_CLAIMS):
        needs.learn(replace(report("a"), work=work, host=AgentId(f"h{number}")))
    assert needs.claims(told, hosts) == {}, "it remembers so many"


def test_a_free_agent_of_the_same_host_that_is_back_is_no_restart() -> None:
    departures = Departures()
    shared = AgentId("h")

    def of_host(id: str, model: str | None = None) -> Member:
        member = host(id, model=model)
        return replace(member, report=replace(member.report, host=shared))

    look(departures, 0.0, of_host("loads", "m"), of_host("spare"))
    look(departures, 1.0)
    assert look(departures, 2.0, of_host("spare")) == {"m": 1}, "the other one may be back, too"
    assert look(departures, 3.0, of_host("spare"), of_host("loads", "m")) == {}


def with_memory(name: str, gib: int) -> Member:
    return member_of(report(name, facts=HostFacts(memory=gib * GIB)), None)


def test_the_smallest_host_that_holds_a_model_is_taken_first() -> None:
    members = [with_memory("a", 64), with_memory("b", 16), with_memory("c", 24)]
    small = place([requirement("m", 1, "a", "b", "c", needed=9 * GIB)], members)
    assert models(small) == {"a": None, "b": "m", "c": None}


def test_where_nobody_knows_what_a_model_needs_the_largest_host_is_taken_first() -> None:
    members = [with_memory("a", 16), with_memory("b", 64), with_memory("c", 24)]
    for needed in (0, inf):
        unknown = place([requirement("m", 1, "a", "b", "c", needed=needed)], members)
        assert models(unknown) == {"a": None, "b": "m", "c": None}


def test_what_is_loaded_counts_with_what_it_says_and_else_with_what_it_claimed() -> None:
    devices = (Device(name="GPU", memory=100),)
    hosts = {"facts": HostFacts(memory=50, devices=devices), "host": AgentId("h")}
    loaded = replace(agent("a", "m").report, held={"GPU": 60}, **hosts)  # type: ignore[arg-type]
    spare = replace(agent("b").report, **hosts)  # type: ignore[arg-type]
    members = [member_of(each, None) for each in (loaded, spare)]

    def placed(**claims: int) -> bool:
        """Whether `n` goes there beside `m`."""
        both = {
            "m": requirement(
                "m", 1, "a", tier=IN_TURN, needed=60, claims={"h": {"CPU": 20, "GPU": 30}}
            ),
            "n": requirement("n", 1, "a", "b", tier=IN_TURN, needed=60, claims={"h": claims}),
        }
        return models(place([*both.values()], members)) == {"a": "m", "b": "n"}

    assert placed(CPU=30, GPU=40)
    assert not placed(CPU=30, GPU=41), "it took more than it claimed"
    assert not placed(CPU=31, GPU=40), "of the host's memory it says nothing"
    assert not placed(CPU=31), "which is short"


@pytest.mark.parametrize("places", ["12", "21"])
def test_what_lies_elsewhere_on_a_host_keeps_its_place_whatever_that_is_called(places: str) -> None:
    host = AgentId("h")
    facts = HostFacts(devices=(Device(name="A", memory=70), Device(name="B", memory=70)))
    lies = {"a": {"A": 33}, "c": {"B": 33}}
    members = [
        member_of(
            report(id, told=wished(name).assignment, host=host, facts=facts, held=lies[name]), None
        )
        for id, name in zip(places, "ac", strict=True)
    ]
    members.append(member_of(report("3", host=host, facts=facts), None))
    requirements = [
        requirement("b", 1, *"123", tier=WAITING, claims={host: {"A": 60}}),
        requirement("a", 1, *"123", tier=IDLE, used_at=2.0, claims={host: lies["a"]}),
        requirement("c", 1, *"123", tier=IDLE, used_at=1.0, claims={host: lies["c"]}),
    ]
    assert models(place(requirements, members)) == {places[0]: "b", places[1]: "c", "3": None}


# ---- memory that programs of others have


def with_card(
    name: str, model: str | None = None, *, size: int = 24, others: int = 0, **fields: object
) -> Member:
    """A host with a card of so many GiB, of which programs of others have some."""
    facts = HostFacts(memory=64 * GIB, devices=(Device(name="CUDA0", memory=size * GIB),))
    told = None if model is None else wished(model).assignment
    taken = {"CUDA0": others * GIB} if others else {}
    return member_of(report(name, told=told, facts=facts, others=taken, **fields), None)


def of_10_gib(*eligible: str, **fields: object) -> Requirement:
    claims = {AgentId(each): {"CUDA0": 10 * GIB, "CPU": GIB} for each in eligible}
    return requirement("m", 1, *eligible, needed=10 * GIB, claims=claims, **fields)


def test_a_host_whose_card_is_full_of_others_memory_is_taken_last() -> None:
    full, free = with_card("a", size=16, others=8), with_card("b", others=8)
    assert models(place([of_10_gib("a", "b")], [full, free])) == {"a": None, "b": "m"}
    known = replace(of_10_gib("a", "b"), claims={})
    assert models(place([known], [full, free])) == {"a": None, "b": "m"}, "by its size alone"
    assert models(place([of_10_gib("a")], [full, free])) == {"a": "m", "b": None}, "but it is taken"
    unfull = with_card("a", size=16, others=6)
    assert models(place([of_10_gib("a", "b")], [unfull, free]))["a"] == "m", "the smaller one"


def test_what_is_not_in_use_makes_room_rather_and_what_is_does_not() -> None:
    members = [with_card("a", others=20), with_card("b", "n")]
    wanted = of_10_gib("a", "b", tier=WAITING)
    for tier, chosen in ((IDLE, {"a": "n", "b": "m"}), (IN_TURN, {"a": "m", "b": "n"})):
        other = requirement("n", 1, "a", "b", tier=tier)
        assert models(place([wanted, other], members)) == chosen


def test_others_memory_moves_nothing_that_has_a_place() -> None:
    members = [with_card("a", "m", others=24), with_card("b")]
    assert models(place([of_10_gib("a", "b")], members)) == {"a": "m", "b": None}
    told = wished("m").assignment
    loading = with_card("a", others=24, work=Work(revision=1, assignment=told, phase="loading"))
    assert models(place([of_10_gib("a", "b")], [loading, members[1]])) == {"a": "m", "b": None}


def test_before_its_size_is_known_a_model_goes_where_most_is_free() -> None:
    members = [with_card("a", size=48, others=40), with_card("b")]
    assert models(place([requirement("m", 1, "a", "b")], members)) == {"a": None, "b": "m"}


def test_what_stays_beside_counts_with_others_memory() -> None:
    host = AgentId("h")
    held = {"CUDA0": 8 * GIB}
    beside = with_card("a", "n", others=8, held=held, host=host, serves="n")
    spare = with_card("b", others=8, host=host)
    wanted = replace(of_10_gib("b", "c"), claims={host: {"CUDA0": 10 * GIB}})
    for tier, chosen in ((IN_TURN, "c"), (IDLE, "b")):
        other = requirement("n", 1, "a", tier=tier, needed=8 * GIB, claims={host: held})
        found = models(place([wanted, other], [beside, spare, with_card("c", "unneeded")]))
        assert [name for name, model in found.items() if model == "m"] == [chosen]
