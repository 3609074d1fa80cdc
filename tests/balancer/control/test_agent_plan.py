import pytest

from arriero.balancer.control.agent_plan import plan_of, plans_of
from arriero.balancer.control.members import member_of
from arriero.shared.inference import AgentId
from arriero.shared.models.assignments import Assignment, HostFacts
from tests.balancer.control.builders import report, wished

OLD = wished("m", 1).assignment


@pytest.mark.parametrize(
    ("told", "target", "action", "why"),
    [
        (OLD, OLD, "keep", "the agent already serves m"),
        (None, None, "keep", "no desired model needs the agent"),
        (OLD, None, "unload", "m is no longer desired on the agent"),
        (None, OLD, "load", "the agent has room for m"),
        (OLD, wished("m", 2).assignment, "reload", "source of m changes, which needs a reload"),
        (OLD, wished("n", 1).assignment, "reload", "n replaces m"),
        (
            OLD,
            wished("m", 1, chat_template="t").assignment,
            "keep",
            "chat_template changes without a reload",
        ),
    ],
)
def test_what_an_agent_would_do(
    told: Assignment | None, target: Assignment | None, action: str, why: str
) -> None:
    plan = plan_of(member_of(report("a", told=told), None), target)
    assert (plan.action, plan.why) == (action, why)
    assert plan.model == (None if target is None else target.name)


def test_a_host_is_said_to_serve_nothing_only_where_that_is_so() -> None:
    members = [
        member_of(report(id, told=told, host=host), None)
        for id, host, told in (
            ("a", "x", None),
            ("b", "x", OLD),
            ("c", "y", None),
            ("d", "y", None),
        )
    ]
    plans = plans_of(members, {AgentId("b"): OLD})
    assert [(plan.agent, plan.action, plan.model) for plan in plans] == [
        ("x", "keep", "m"),
        ("y", "keep", None),
    ]
    gone = plans_of(members[:2], {})
    assert [(plan.agent, plan.action) for plan in gone] == [("x", "unload")]


def test_agents_that_are_not_steered_keep_what_they_have() -> None:
    pinned = member_of(report("a", serves="x", facts=HostFacts(is_pinned=True)), None)
    assert (plan_of(pinned, None).action, plan_of(pinned, None).model) == ("keep", "x")
    cordoned = member_of(report("a", told=OLD, is_cordoned=True), None)
    assert (
        plan_of(cordoned, None).why
        == "the agent is drained, so it gets no model until it is resumed"
    )
