from arriero.balancer.fleet.core.steering import MAX_CORDONS, Cordons
from arriero.balancer.fleet.view import Cordon
from arriero.shared.inference import AgentId

A, B, C = AgentId("a"), AgentId("b"), AgentId("c")


def here(*ids: AgentId) -> set[AgentId]:
    return set(ids)


def cordoned(deadline: float | None = None) -> Cordons:
    cordons = Cordons()
    cordons.add(A, "host", deadline)
    return cordons


def test_an_agent_that_starts_again_is_still_cordoned() -> None:
    cordons = cordoned()
    assert cordons.joined(B, "host", here().__contains__)
    assert cordons.get(A) is None
    assert cordons.get(B) == Cordon(A, "host"), "it is the same cordon"
    assert cordons.joined(B, "host", here(B).__contains__), "it dials again"
    cordons.remove(B)
    assert not cordons.joined(C, "host", here().__contains__)
    cordons.check_integrity()


def test_another_agent_of_that_name_is_not() -> None:
    cordons = cordoned()
    assert not cordons.joined(B, "host", here(A).__contains__)
    assert not cordons.joined(C, "other", here().__contains__)
    assert cordons.joined(A, "host", here(B).__contains__)


def test_of_two_with_one_name_each_takes_up_one_cordon() -> None:
    cordons = cordoned()
    cordons.add(B, "host", None)
    assert cordons.joined(C, "host", here(B).__contains__)
    assert not cordons.joined(AgentId("d"), "host", here(B, C).__contains__)


def test_a_deadline_comes_once_and_goes_with_the_cordon() -> None:
    cordons = cordoned(deadline=5.0)
    assert cordons.next_deadline() == 5.0
    assert cordons.due(4.9) == []
    assert cordons.due(5.0) == [A]
    assert cordons.next_deadline() is None
    assert cordons.get(A) is not None
    cordons.add(A, "host", 9.0)
    cordons.add(A, "host", None)
    assert cordons.next_deadline() is None
    cordons.add(A, "host", 9.0)
    cordons.remove(A)
    assert cordons.next_deadline() is None


def test_deadlines_are_told_by_first_agents() -> None:
    cordons = cordoned()
    assert cordons.joined(B, "host", here().__contains__)
    cordons.meet({A: 5.0, C: 1.0})
    assert (cordons.next_deadline(), cordons.due(5.0)) == (5.0, [B])
    cordons.meet({A: 6.0})
    cordons.meet({})
    assert cordons.next_deadline() == 6.0
    cordons.meet({A: None})
    assert cordons.next_deadline() is None
    cordons.check_integrity()


def test_cordons_that_were_there_before() -> None:
    cordons = Cordons()
    cordons.restored([Cordon(A, "host")])
    assert cordons.joined(B, "host", here().__contains__)
    cordons.add(B, "host", None)
    assert cordons.get(B) == Cordon(A, "host")


def test_the_oldest_is_forgotten_first() -> None:
    cordons = cordoned(deadline=5.0)
    for number in range(MAX_CORDONS):
        cordons.add(AgentId(f"x{number}"), "host", None)
        cordons.check_integrity()
    assert len(cordons) == MAX_CORDONS
    assert cordons.get(A) is None
