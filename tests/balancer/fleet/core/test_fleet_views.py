"""What the fleet's core shows of itself."""

from dataclasses import replace

from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.view import FleetView
from arriero.shared.inference import AgentId
from arriero.shared.messages import Heartbeat
from tests.balancer.fleet.builders import hello, model_info, piece, seen
from tests.balancer.fleet.core.scene import LIMITS, A, B, with_agent
from tests.balancer.fleet.mirror import Mirror


def test_the_revision_grows_with_what_can_be_seen() -> None:
    scene = with_agent(limits=LIMITS)
    before = scene.fleet.revision
    scene.after(1.0)
    scene.fleet.agent_said(A, Heartbeat(), scene.now)
    assert scene.fleet.revision == before, "heartbeats show nothing"
    scene.open("r")
    assert scene.fleet.revision > before


def test_the_view_adds_up() -> None:
    scene = with_agent()
    scene.open("1", "2")
    scene.say(A, piece("1", num_tokens=3))
    scene.now += 2.0
    view = seen(scene.fleet, scene.now).view()
    [agent] = view.agents
    assert (agent.slots.busy, agent.slots.total, agent.num_tokens) == (1, 1, 3)
    assert agent.connected_seconds == 2.0
    found = [(each.id, each.state, each.agent) for each in view.requests]
    assert found == [("1", "streaming", agent.id), ("2", "queued", None)], "oldest first"
    assert (view.queue_depth, view.slots_busy, view.slots_total) == (1, 1, 1)
    assert (view.tokens_total, view.is_ready, view.is_draining) == (3, True, False)


def test_models_are_named_once_in_order_with_their_status() -> None:
    fleet = Fleet(Limits())
    for link, model in enumerate(("qwen", "llama", None, "llama")):
        fleet.agent_joined(LinkId(link), hello(f"a{link}", model=model), 0.0)
    fleet.agent_left(LinkId(0), 1.0)
    loading = replace(hello("b", model=None), loading=model_info("mistral"))
    fleet.agent_joined(LinkId(9), loading, 2.0)
    assert [(view.info.name, view.status) for view in seen(fleet).models()] == [
        ("llama", "loaded"),
        ("mistral", "loading"),
        ("qwen", "unloaded"),
    ]
    assert (seen(fleet).totals().num_models, seen(fleet).totals().num_models_unloaded) == (3, 1)


def test_a_view_is_the_totals_and_all_there_is() -> None:
    fleet = Fleet(Limits())
    fleet.agent_joined(A, hello("a"), 0.0)
    view = seen(fleet, 1.0).view()
    assert isinstance(view, FleetView)
    assert [agent.id for agent in view.agents] == ["a"]
    assert view.num_agents == seen(fleet).totals().num_agents == 1


def test_a_delta_is_what_changed_and_nothing_else() -> None:
    fleet = Fleet(Limits())
    fleet.agent_joined(A, hello("a"), 0.0)
    revision = fleet.revision
    fleet.agent_joined(B, hello("b"), 0.0)
    delta = seen(fleet, 1.0).changes_since(revision)
    assert delta is not None
    assert ([agent.id for agent in delta.agents], delta.totals) == (["b"], seen(fleet).totals())
    assert seen(fleet, 1.0).changes_since(delta.revision) == replace(
        delta, agents=(), agents_left=()
    )
    fleet.agent_left(A, 2.0)
    left = seen(fleet, 2.0).changes_since(delta.revision)
    assert left is not None
    assert (left.agents, left.agents_left) == ((), ("a",))


def test_an_old_process_that_leaves_takes_its_requests_from_its_agent() -> None:
    scene = with_agent()
    scene.open("r")
    mirror = Mirror()
    scene.join(B, hello("a1", slots=0, takes_over=True))
    mirror.follow(scene.fleet, scene.now)
    assert mirror.agents[AgentId("a1")].slots.busy == 1
    scene.leave(A)
    mirror.follow(scene.fleet, scene.now)
    assert mirror.agents[AgentId("a1")].slots.busy == 0
