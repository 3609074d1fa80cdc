from dataclasses import replace

from arriero.balancer.control.members import Failures, Member, Order, member_of
from arriero.balancer.control.rollout import Rollout
from arriero.shared.models.assignments import Assignment
from tests.balancer.control.builders import report, wished

OLD = wished("m", 1).assignment
NEW = wished("m", 2).assignment
OTHER = wished("n", 1).assignment


def serving(name: str, told: Assignment | None = OLD, **fields: object) -> Member:
    return member_of(report(name, told=told, **fields), None)


def loading(name: str, target: Assignment = NEW, *, interrupts: str | None = "m") -> Member:
    order = Order(revision=5, assignment=target, link=1, interrupts=interrupts)
    return member_of(report(name, told=OLD, serves=interrupts), order)


def failed(name: str, told: Assignment = NEW, serves: str | None = "m") -> Member:
    return member_of(report(name, told=told, phase="failed", serves=serves), None)


def allowed(
    members: list[Member],
    targets: dict[str, Assignment | None],
    *,
    protected: tuple[str, ...] = ("m", "n"),
    failures: Failures | None = None,
) -> list[str]:
    rollout = Rollout(
        members,
        targets,  # type: ignore[arg-type]
        protected=frozenset(protected),
        failures=failures or Failures(),
        now=10.0,
    )
    return [change.member.report.name for change in rollout.changes()]


def test_agents_change_one_after_the_other() -> None:
    everybody = {"a": NEW, "b": NEW, "c": NEW}
    assert len(allowed([serving("a"), serving("b"), serving("c")], everybody)) == 1
    assert allowed([loading("a"), serving("b"), serving("c")], everybody) == []
    assert allowed([serving("a", NEW), serving("b"), serving("c")], everybody) == ["b"]
    assert allowed([serving("a", NEW), serving("b", NEW), serving("c")], everybody) == ["c"]


def test_the_only_agent_of_a_model_changes_at_once() -> None:
    assert allowed([serving("a")], {"a": NEW}) == ["a"]


def test_the_last_agent_waits_for_one_that_is_about_to_serve() -> None:
    members = [serving("a"), serving("b", None)]
    assert allowed(members, {"a": NEW, "b": NEW}) == ["b"]
    members = [serving("a"), loading("b", interrupts=None)]
    assert allowed(members, {"a": NEW, "b": NEW}) == []


def test_a_cordoned_agent_does_not_stand_in() -> None:
    members = [serving("a"), serving("b", is_cordoned=True), serving("c", None)]
    assert allowed(members, {"a": NEW, "c": NEW}) == ["c"]


def test_changes_without_a_reload_happen_everywhere_at_once() -> None:
    live = wished("m", 1, chat_template="t").assignment
    assert allowed([serving("a"), serving("b")], {"a": live, "b": live}) == ["a", "b"]


def test_what_nobody_wishes_for_is_unloaded_at_once() -> None:
    members = [serving("a"), serving("b")]
    assert allowed(members, {"a": None, "b": OTHER}, protected=("n",)) == ["a", "b"]


def test_a_failure_stops_the_others() -> None:
    members = [failed("a"), serving("b"), serving("c", None)]
    failures = Failures()
    failures.failed(members[0], is_new=True, now=0.0)
    targets = {"a": NEW, "b": NEW, "c": NEW}
    assert allowed(members, targets, failures=failures) == ["c"]
    failures.retry(members[0].id, 10.0)
    assert allowed(members, targets, failures=failures) == ["c", "a"]


def test_an_agent_that_serves_nothing_tries_again_when_its_time_has_come() -> None:
    member = failed("a", serves=None)
    failures = Failures()
    failures.failed(member, is_new=True, now=0.0)
    assert allowed([member], {"a": NEW}, failures=failures) == []
    failures = Failures()
    failures.failed(member, is_new=True, now=-30.0)
    assert allowed([member], {"a": NEW}, failures=failures) == ["a"]


def test_an_idle_agent_keeps_what_it_failed_to_load() -> None:
    member = failed("a", serves=None)
    failures = Failures()
    failures.failed(member, is_new=True, now=0.0)
    assert allowed([member], {"a": None}, failures=failures) == []
    assert allowed([member], {"a": None}) == ["a"]


def test_a_newer_wish_replaces_one_under_way() -> None:
    assert allowed([loading("a"), serving("b")], {"a": OLD, "b": OLD}) == ["a"]


def test_two_that_wait_for_each_other_do_not_wait_for_ever() -> None:
    members = [serving("a", OLD), serving("b", OTHER)]
    assert len(allowed(members, {"a": OTHER, "b": OLD})) == 1


def test_nobody_gives_up_the_last_agent_for_one_that_was_stopped() -> None:
    """b was to serve m instead of a; it must not, since c failed with it."""
    bad = failed("c", OLD, serves=None)
    failures = Failures()
    failures.failed(bad, is_new=True, now=0.0)
    members = [serving("a", wished("m", 3).assignment), serving("b", OTHER), bad]
    assert allowed(members, {"a": OTHER, "b": OLD, "c": None}, failures=failures) == []


def waiting(name: str, target: Assignment) -> Member:
    """It has the file, and waits for room."""
    return member_of(report(name, told=target, phase="draining"), None)


def test_one_that_waits_for_room_hears_that_it_takes_what_is_left_once() -> None:
    modest = replace(OTHER, takes_what_is_left=True)
    assert allowed([waiting("a", OTHER)], {"a": OTHER}) == []
    assert allowed([waiting("a", OTHER)], {"a": modest}) == ["a"]
    assert allowed([waiting("a", modest)], {"a": modest}) == []
    assert allowed([serving("a", OTHER)], {"a": modest}) == [], "it waits for nothing"


def test_those_that_change_places_do_not_wait_for_one_that_waits_for_room() -> None:
    members = [serving("a"), serving("b", OTHER, serves="n"), waiting("c", wished("o").assignment)]
    targets = {"a": OTHER, "b": OLD, "c": wished("o").assignment}
    assert allowed(members, targets) == ["a"]
