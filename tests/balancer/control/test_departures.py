from dataclasses import replace

from arriero.balancer.control.departures import HOLD, REDIAL, Departures
from arriero.balancer.control.members import Member, member_of
from arriero.shared.inference import AgentId
from tests.balancer.control.builders import report, wished


def agent(id: str, *, name: str = "host", model: str | None = "m") -> Member:
    told = None if model is None else wished(model).assignment
    return member_of(replace(report(id, told=told), name=name), None)


def look(departures: Departures, now: float, *members: Member) -> dict[str, int]:
    departures.look({member.id: member for member in members}, now)
    return dict(departures.reserved())


def test_the_place_of_an_agent_that_has_gone_is_kept_for_a_while() -> None:
    departures = Departures()
    assert look(departures, 0.0, agent("a"), agent("b", model=None)) == {}
    assert look(departures, 1.0) == {"m": 1}
    assert departures.next_change(1.0) == 1.0 + REDIAL
    assert departures.next_change(1.0 + REDIAL) == 1.0 + HOLD
    assert look(departures, 1.0 + HOLD) == {}
    assert departures.next_change(1.0 + HOLD) is None


def test_an_agent_that_is_gone_for_a_moment_may_only_dial_again() -> None:
    departures = Departures()
    look(departures, 0.0, agent("a"))
    look(departures, 1.0)
    assert departures.redialling(1.0) == {"m"}
    assert departures.redialling(1.0 + REDIAL) == set()


def test_an_agent_that_is_back_has_its_place() -> None:
    departures = Departures()
    look(departures, 0.0, agent("a"))
    look(departures, 1.0)
    assert look(departures, 2.0, agent("a")) == {}


def test_an_agent_that_was_started_again_has_another_id_and_the_same_name() -> None:
    departures = Departures()
    look(departures, 0.0, agent("a"), agent("b", name="other"))
    look(departures, 1.0)
    new = AgentId("a2")
    assert look(departures, 2.0, agent(new, model=None)) == {"m": 1}
