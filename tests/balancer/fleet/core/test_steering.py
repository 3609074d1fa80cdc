"""The controller in the core: when it looks, what it sees, what agents are sent."""

from dataclasses import replace

import pytest

from arriero.balancer.access.identity import CallerLimits, Identity
from arriero.balancer.control.controller import SETTLE
from arriero.balancer.control.desired_state import AgentChoice, DesiredModel, DesiredState
from arriero.balancer.control.members import FIRST_RETRY
from arriero.balancer.fleet.core.steering import (
    RECONCILE_PAUSE,
    RECONCILE_PAUSE_PER_AGENT,
    UNSCHEDULED,
    LoadTimes,
    may_need_order,
    memory_of_others,
)
from arriero.balancer.fleet.decisions import (
    Decision,
    Deliver,
    Disconnect,
    LinkId,
    Moved,
    Refuse,
    Send,
)
from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.balancer.fleet.registry import Agent
from arriero.shared.continuation import Continuation
from arriero.shared.errors import (
    EngineFailed,
    ModelFailed,
    ModelNotFound,
    NotFound,
    RequestError,
    ShuttingDown,
)
from arriero.shared.framing.heartbeat import HeartbeatMonitor
from arriero.shared.inference import AgentId, Done, Failed, RequestId, Waiting
from arriero.shared.inference.adapters import AdapterChoice
from arriero.shared.messages import Cancel, Hello, Issue, Start, Status, Welcome
from arriero.shared.models.assignments import (
    Assign,
    Assignment,
    DesiredAdapter,
    Device,
    Download,
    HostFacts,
    MemoryPart,
    Phase,
    Reload,
    Work,
)
from arriero.shared.queries import Tokenize
from arriero.shared.reports.statistics import DeviceMemory, Statistics
from tests.balancer.fleet.builders import (
    codes,
    delivered,
    ended,
    forwarding,
    hello,
    piece,
    refused,
    request,
    seen,
    sent,
    status,
    work,
)
from tests.balancer.fleet.core.scene import A, B, Scene

C = LinkId(3)

FILE = "file:///llama.gguf"


def wished(name: str = "llama", source: str = FILE, **fields: object) -> DesiredModel:
    replicas = fields.pop("replicas", "all")
    return DesiredModel(name=name, source=source, agents=AgentChoice(replicas=replicas), **fields)  # type: ignore[arg-type]


class Steered(Scene):
    """A fleet with a wish."""

    def wish(self, *models: DesiredModel) -> list[Decision]:
        return self._checked(self.fleet.desire(DesiredState(models=models), self.now))

    def join_idle(self, link: LinkId, id: str) -> list[Decision]:
        return self.join(link, hello(id, model=None, slots=0))

    def tell(self, link: LinkId, said: Status) -> list[Decision]:
        return self._checked(self.fleet.agent_said(link, said, self.now))

    def look(self) -> dict[LinkId, str | None]:
        """What agents are told a moment later."""
        self.now += RECONCILE_PAUSE
        decisions = self._checked(self.fleet.tick(self.now))
        return {
            each.link: each.message.assignment.source if each.message.assignment else None
            for each in decisions
            if isinstance(each, Send) and isinstance(each.message, Assign)
        }

    def serve(self, link: LinkId, assignment: Assignment, revision: int) -> list[Decision]:
        said = status(model=assignment.name, work=work("serving", assignment, revision=revision))
        return self.tell(link, said)

    def state_of(self, id: str) -> str:
        view = seen(self.fleet, self.now).agent(AgentId(id))
        assert view is not None
        return view.state


def started(decisions: list[Decision]) -> list[tuple[LinkId, str]]:
    return [
        (each.link, each.message.id)
        for each in decisions
        if isinstance(each, Send) and isinstance(each.message, Start)
    ]


def test_an_idle_agent_is_told_what_is_wished_for() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    assert scene.look() == {}
    assert scene.state_of("a") == "idle"
    scene.wish(wished())
    assert scene.fleet.next_deadline() == scene.now + RECONCILE_PAUSE
    assert scene.look() == {A: FILE}
    assert scene.look() == {}


def test_where_a_model_is_placed_is_said_once_it_was_placed() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    away = DesiredModel(name="n", source=FILE, agents=AgentChoice(labels={"gpu": "yes"}))
    resting = DesiredModel(name="o", source=FILE, preload=False)
    scene.wish(DesiredModel(name="m", source=FILE), away, resting)
    placement_of = scene.fleet.steering.placement_of
    assert [placement_of(name) for name in "mnop"] == [None] * 4
    scene.look()
    name = scene.fleet.state.registry.of(AgentId("a")).name
    assert [placement_of(each) for each in "mnop"] == [
        f"on {name}",
        f"on no agent; not on {name}, without its labels",
        None,
        None,
    ]


def test_a_host_is_waited_for_that_says_it_is_more_agents() -> None:
    scene = Steered()
    scene.fleet.restored(DesiredState(models=(wished(),)), scene.now)
    scene.now += SETTLE
    host = AgentId("h")
    scene.join(A, replace(hello("a", model=None, slots=0), host=host, num_places=2))
    assert scene.look() == {}
    scene.join(B, replace(hello("b", model=None, slots=0), host=host))
    assert len(scene.look()) == 1


def test_in_a_large_fleet_looks_are_further_apart() -> None:
    scene = Steered()
    for number in range(2000):
        scene.fleet.agent_joined(LinkId(number), hello(f"{number}", model=None), scene.now)
    scene.fleet.desire(DesiredState(models=(wished(),)), scene.now)
    assert scene.fleet.next_deadline() == scene.now + 2000 * RECONCILE_PAUSE_PER_AGENT


def test_an_agent_is_told_only_what_its_key_allows() -> None:
    scene = Steered()
    holder = Identity(name="rack", role="agent", limits=CallerLimits(models=("other",)))
    scene.fleet.agent_joined(A, hello("a", model=None, slots=0), scene.now, holder)
    scene.wish(wished())
    assert scene.look() == {}
    [issue] = seen(scene.fleet).statuses()["llama"].issues
    assert issue.code == "key_forbids"
    scene.wish(wished(), wished("other", "file:///o.gguf"))
    assert scene.look() == {A: "file:///o.gguf"}


def test_a_request_for_a_wished_model_waits_until_an_agent_has_it() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    model = wished(preload=False, aliases=("gpt-4o-mini",))
    scene.wish(model)
    assert scene.look() == {}
    assert scene.open("r", model="gpt-4o-mini") == []
    assert scene.look() == {A: FILE}
    assert started(scene.serve(A, model.assignment, 1)) == [(A, "r")]


def test_a_request_for_a_wished_adapter_waits_until_an_agent_has_it() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    adapter = DesiredAdapter(name="support", source="file:///s.gguf")
    model = wished(preload=False, aliases=("gpt",), adapters=(adapter,))
    scene.wish(model)
    assert [each.info.name for each in seen(scene.fleet).models()] == ["llama", "llama:support"]
    assert isinstance(refusal(scene.open("n", model="llama:other")), ModelNotFound)
    assert scene.look() == {}
    assert scene.open("r", model="gpt:support") == []
    assert scene.look() == {A: FILE}
    assert [each.status for each in seen(scene.fleet).models()] == ["loading", "loading"]
    done = work("serving", model.assignment, revision=1)
    said = status(model="llama", work=done)
    assert said.model is not None
    told = replace(said, model=replace(said.model, adapters=("support",)))
    assert started(scene.tell(A, told)) == [(A, "r")]
    assert [each.status for each in seen(scene.fleet).models()] == ["loaded", "loaded"]


BAD, GOOD = (DesiredAdapter(name=one, source=f"file:///{one}.gguf") for one in ("bad", "good"))
BROKEN = Issue(code="adapter", message="adapter `bad`: file:///bad.gguf is broken", adapter="bad")


def without_bad(scene: Steered, model: DesiredModel) -> list[Decision]:
    """The agent has the model, but not one of its adapters."""
    failed = work("failed", model.assignment, revision=1)
    said = status(model="llama", work=failed, issues=(BROKEN,))
    assert said.model is not None
    return scene.tell(A, replace(said, model=replace(said.model, adapters=("good",))))


def test_a_request_for_an_adapter_that_cannot_be_had_ends_with_the_reason() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    model = wished(adapters=(BAD, GOOD), aliases=("gpt",))
    scene.wish(model)
    scene.look()
    assert scene.open("waits", model="llama:bad") == []
    assert scene.open("good", model="llama:good") == []
    assert started(without_bad(scene, model)) == [(A, "good")]
    scene.now += RECONCILE_PAUSE
    decisions = scene.fleet.tick(scene.now)
    [told] = [each for each in decisions if isinstance(each, Deliver)]
    assert told.request == "waits"
    late = refusal(scene.open("late", model="gpt:bad"))
    both = (AdapterChoice(name="good"), AdapterChoice(name="bad"))
    several = replace(request("llama"), adapters=both)
    named = refusal(scene.fleet.request_arrived(RequestId("both"), several, scene.now))
    for error in (late, named):
        assert isinstance(error, ModelNotFound)
        assert error.message == (
            "the adapter `bad` of the model `llama` cannot be served: "
            "adapter `bad`: file:///bad.gguf is broken"
        )
    views = {each.info.name: each for each in seen(scene.fleet).models()}
    assert {name: view.status for name, view in views.items()} == {
        "llama": "loaded",
        "llama:bad": "failed",
        "llama:good": "loaded",
    }
    told_of = {name: [issue.message for issue in view.issues] for name, view in views.items()}
    assert told_of["llama"] == told_of["llama:bad"] == [f"agent host-a: {BROKEN.message}"]
    assert told_of["llama:good"] == []


def test_an_adapter_beside_a_model_that_is_loaded_is_loading_until_an_agent_has_it() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished())
    scene.look()
    scene.serve(A, wished().assignment, 1)
    scene.look()

    def told() -> list[tuple[str, float | None]]:
        return [(each.status, each.progress) for each in seen(scene.fleet).models()]

    model = wished(adapters=(GOOD,))
    scene.wish(model)
    assert told() == [("loaded", None), ("waiting", None)]
    scene.look()
    said = status(
        model="llama", work=replace(work("fetching", model.assignment, revision=2), progress=0.5)
    )
    scene.tell(A, said)
    scene.look()
    assert told() == [("loaded", None), ("loading", 0.25)]
    scene.tell(A, replace(said, work=work("loading", model.assignment, revision=2)))
    scene.look()
    assert told() == [("loaded", None), ("loading", 0.5)]
    assert said.model is not None
    served = replace(said.model, adapters=("good",))
    scene.tell(A, replace(said, model=served, work=work("serving", model.assignment, revision=2)))
    assert told() == [("loaded", None), ("loaded", None)]


def test_an_adapter_from_another_source_is_waited_for_again() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    model = wished(adapters=(BAD, GOOD))
    scene.wish(model)
    scene.look()
    without_bad(scene, model)
    scene.look()
    mended = wished(adapters=(replace(BAD, source="file:///mended.gguf"), GOOD))
    scene.wish(mended)
    assert scene.open("r", model="llama:bad") == []
    scene.look()
    assert scene.open("s", model="llama:bad") == []
    said = status(model="llama", work=work("serving", mended.assignment, revision=2))
    assert said.model is not None
    told = replace(said, model=replace(said.model, adapters=("good", "bad")))
    assert started(scene.tell(A, told)) == [(A, "r"), (A, "s")]


def test_a_request_for_any_model_has_the_first_one_loaded() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished(preload=False), wished("other", "file:///o.gguf", preload=False))
    scene.look()
    scene.open("r")
    assert scene.look() == {A: FILE}


def test_a_request_that_came_before_its_alias_follows_it_in_its_place() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.open("first", model="gpt-4o-mini")
    scene.open("second", model="llama")
    scene.open("other", model="x")
    model = wished(preload=False, aliases=("gpt-4o-mini",))
    assert started(scene.wish(model)) == []
    assert scene.look() == {A: FILE}
    [sent] = [
        each.message
        for each in scene.tell(
            A, status(slots=1, model="llama", work=work("serving", model.assignment, revision=1))
        )
        if isinstance(each, Send) and isinstance(each.message, Start)
    ]
    assert (sent.id, sent.request.model) == ("first", "llama")


def test_a_request_that_waits_for_an_alias_of_what_is_here_starts_with_the_wish() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.open("r", model="gpt-4o-mini")
    scene.tell(A, status(model="llama"))
    assert started(scene.wish(wished(aliases=("gpt-4o-mini",)))) == [(A, "r")]


def test_a_query_that_waits_for_an_alias_follows_it() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    query = QueryRequest(kind="text", parts=(Tokenize(text="x"),), model="gpt-4o-mini")
    scene.fleet.query_arrived(RequestId("q"), query, scene.now)
    scene.tell(A, status(model="llama"))
    told = scene.wish(wished(aliases=("gpt-4o-mini",)))
    assert [each.message.query for each in told if isinstance(each, Send)] == [Tokenize(text="x")]  # type: ignore[union-attr]
    [view] = seen(scene.fleet, scene.now).requests()
    assert (view.state, view.model) == ("assigned", "llama")


def test_an_agent_gets_the_models_name_and_never_an_alias() -> None:
    scene = Steered()
    scene.join(A, hello("a"))
    scene.wish(wished(aliases=("gpt-4o-mini",)))
    [sent] = scene.open("r", model="gpt-4o-mini")
    assert isinstance(sent, Send)
    assert isinstance(sent.message, Start)
    assert sent.message.request.model == "llama"
    view = seen(scene.fleet).model("gpt-4o-mini")
    assert view is not None
    assert view.info.name == "llama"


def refusal(decisions: list[Decision]) -> RequestError | None:
    return next((each.error for each in decisions if isinstance(each, Refuse)), None)


def test_what_nobody_serves_or_wishes_for_is_refused() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    assert refusal(scene.open("r1", model="x")) is None, "nobody here can say"
    scene.wish(wished())
    assert isinstance(refusal(scene.open("r2", model="x")), ModelNotFound)
    assert refusal(scene.open("r3", model="llama")) is None
    scene.wish()
    assert refusal(scene.open("r4", model="llama")) is None


def test_models_are_listed_with_their_status() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished(), wished("other", "file:///o.gguf", preload=False))
    scene.look()
    assert [(each.info.name, each.status) for each in seen(scene.fleet).models()] == [
        ("llama", "loading"),
        ("other", "unloaded"),
    ]
    scene.serve(A, wished().assignment, 1)
    assert [each.status for each in seen(scene.fleet).models()] == ["loaded", "unloaded"]


def test_agents_have_time_to_dial_again_after_a_start() -> None:
    scene = Steered()
    scene.fleet.restored(DesiredState(models=(wished(),)), scene.now)
    scene.join_idle(A, "a")
    assert scene.look() == {}
    scene.now += SETTLE
    assert scene.look() == {A: FILE}


# ---- another process takes over


def test_a_process_that_takes_over_gets_what_is_new_and_the_old_one_finishes() -> None:
    scene = Steered()
    scene.join(A, hello("a"))
    scene.open("r1")
    decisions = scene.join(B, hello("a", takes_over=True))
    assert not [each for each in decisions if isinstance(each, Disconnect)]
    assert seen(scene.fleet).totals().num_agents == 1
    assert seen(scene.fleet).totals().slots_total == 2
    assert started(scene.open("r2")) == [(B, "r2")]
    scene.say(A, piece("r1"))
    assert not [
        each
        for each in scene.say(A, ended("r1"))
        if isinstance(each, Deliver) and isinstance(each.event, Failed)
    ]
    scene.leave(A)
    assert seen(scene.fleet, scene.now).agent(AgentId("a")) is not None
    assert [each.id for each in seen(scene.fleet, scene.now).view().agents] == ["a"]


def test_a_process_that_was_taken_over_does_not_come_back_with_its_slots() -> None:
    scene = Steered()
    scene.join(A, hello("a"))
    scene.join(B, hello("a", takes_over=True))
    scene.tell(A, status(slots=4))
    assert seen(scene.fleet).totals().slots_total == 2
    scene.leave(B)
    assert seen(scene.fleet, scene.now).agent(AgentId("a")) is None
    scene.tell(A, status(slots=4))
    assert scene.open("r", model="llama") == []


OTHER = wished("other", "file:///o.gguf", preload=False)
IN_USE = wished(preload=False)


def one_in_use(*, finishing: bool) -> Steered:
    """An agent with a running request for `llama`, which is to load the other model by order 1."""
    scene = Steered()
    scene.join(A, hello("a"))
    scene.serve(A, IN_USE.assignment, 1)
    scene.open("r1", model="llama")
    scene.wish(IN_USE, OTHER)
    scene.look()
    phase: Phase = "draining" if finishing else "fetching"
    told = work(phase, OTHER.assignment, revision=2)
    scene.tell(A, status(model="llama", accepting=not finishing, work=told))
    if finishing:
        scene.join(B, hello("a", model=None, slots=0, work=told, takes_over=True))
    return scene


@pytest.mark.parametrize("finishing", [False, True])
def test_a_model_in_use_is_kept_when_nobody_waits_for_the_other_one(finishing: bool) -> None:
    scene = one_in_use(finishing=finishing)
    link = B if finishing else A
    scene.now += RECONCILE_PAUSE
    assert scene.look() == {link: FILE}
    serving = work("serving", IN_USE.assignment, revision=3)
    scene.join(C, hello("a", work=serving, takes_over=True))
    assert scene.look() == {}
    assert started(scene.open("r2", model="llama")) == [(C, "r2")]


def test_what_drains_does_so_while_somebody_waits() -> None:
    scene = one_in_use(finishing=True)
    scene.open("r2", model="other")
    assert scene.look() == {}
    scene.say(A, ended("r1"))
    scene.leave(A)
    assert scene.look() == {}


def test_the_fleet_is_looked_at_when_a_request_gives_up_that_no_agent_had() -> None:
    scene = Steered()
    scene.join(A, hello("a"))
    scene.serve(A, IN_USE.assignment, 1)
    scene.wish(IN_USE, OTHER)
    scene.open("r1", model="llama")
    for give_up in (scene.close, scene.cancel):
        scene.open("r2", model="other")
        scene.look()
        give_up("r2")
        assert scene.fleet.next_deadline() == scene.now + RECONCILE_PAUSE
        scene.look()


# ---- operators


def test_a_drained_agent_gets_nothing_new_until_it_is_resumed() -> None:
    scene = Steered()
    scene.join(A, hello("a", slots=1))
    scene.open("r1")
    assert scene.fleet.cordon(AgentId("a"), None, scene.now) == []
    assert scene.state_of("a") == "draining"
    assert scene.open("r2") == []
    assert started(scene.say(A, ended("r1"))) == []
    assert scene.state_of("a") == "drained"
    assert started(scene.fleet.resume(AgentId("a"), scene.now)) == [(A, "r2")]
    assert scene.state_of("a") == "ready"


def drained_in_an_answer(fingerprint: str | None) -> tuple[Steered, list[Decision]]:
    """The decisions at the deadline of a drain."""
    scene = Steered()
    scene.join(A, hello("a", fingerprint=fingerprint))
    scene.open("r")
    scene.say(A, piece("r"))
    scene.fleet.cordon(AgentId("a"), 5.0, scene.now)
    assert scene.fleet.next_deadline() == scene.now + 5.0
    return scene, scene.after(5.0)


def test_what_runs_past_the_deadline_of_a_drain_moves_when_the_agent_has_stopped() -> None:
    scene, decisions = drained_in_an_answer("f")
    assert decisions == [Send(A, Cancel(id=RequestId("r")))]
    scene.join(B, hello("b", fingerprint="f"))
    assert scene.say(A, piece("r", "late")) == [], "the next agent says it again"
    moved, started = scene.say(A, ended("r", "cancelled"))
    assert isinstance(moved, Moved) and moved.reason == "drained"
    assert isinstance(started, Send) and isinstance(started.message, Start)
    assert started.message.continuation == Continuation.after([0], num_characters=4)
    assert scene.state_of("a") == "drained"


def test_an_agent_that_is_resumed_before_it_has_stopped_goes_on_with_what_it_stops() -> None:
    scene, _ = drained_in_an_answer("f")
    scene.fleet.resume(AgentId("a"), scene.now)
    decisions = scene.say(A, ended("r", "cancelled"))
    assert started(decisions) == [(A, "r")], "an agent that was drained is not full"
    assert started(scene.open("r2")) == [(A, "r2")]


def test_what_cannot_move_ends_at_the_deadline_of_a_drain() -> None:
    scene, decisions = drained_in_an_answer(None)
    assert any(isinstance(d, Send) and isinstance(d.message, Cancel) for d in decisions)
    [end] = [each.event for each in decisions if isinstance(each, Deliver)]
    assert isinstance(end, Failed)
    assert isinstance(end.error, ShuttingDown)
    assert RequestId("r") not in scene.fleet
    assert scene.state_of("a") == "drained"


def test_a_client_that_cancels_what_moves_hears_so() -> None:
    scene, _ = drained_in_an_answer("f")
    assert sent(scene.cancel("r")) == [], "the agent was told"
    assert codes(scene.say(A, ended("r", "cancelled"))) == {"r": "cancelled"}


def test_a_client_that_cancelled_before_the_drain_gets_the_agents_answer() -> None:
    scene = Steered()
    scene.join(A, hello("a", fingerprint="f"))
    scene.open("r")
    scene.cancel("r")
    scene.fleet.cordon(AgentId("a"), 5.0, scene.now)
    assert scene.after(5.0) == []
    [(_, done)] = delivered(scene.say(A, ended("r", "cancelled")))
    assert isinstance(done, Done)


def test_an_error_of_a_request_that_moves_is_its_end() -> None:
    scene, _ = drained_in_an_answer("f")
    decisions = scene.say(A, refused("r", EngineFailed("broken")))
    assert codes(decisions) == {"r": "engine_failed"}


def test_a_drained_agent_that_dials_again_is_still_drained() -> None:
    scene = Steered()
    scene.join(A, hello("a"))
    scene.fleet.cordon(AgentId("a"), None, scene.now)
    scene.leave(A)
    scene.join(B, hello("a"))
    assert scene.open("r") == []


def test_a_drained_host_that_starts_again_is_still_drained() -> None:
    scene = Steered()
    old, new, other = (
        replace(hello(id), name=name) for id, name in (("a", "x"), ("b", "x"), ("c", "y"))
    )
    scene.join(A, old)
    scene.fleet.cordon(AgentId("a"), None, scene.now)
    scene.leave(A)
    scene.join(B, new)
    assert scene.state_of("b") == "drained"
    scene.join(A, other)
    assert started(scene.open("r")) == [(A, "r")]
    scene.fleet.resume(AgentId("b"), scene.now)
    scene.leave(B)
    scene.join(B, replace(new, agent_id=AgentId("d")))
    assert scene.state_of("d") == "ready"


def test_a_drained_agent_is_told_nothing() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.fleet.cordon(AgentId("a"), None, scene.now)
    scene.wish(wished())
    assert scene.look() == {}
    scene.fleet.resume(AgentId("a"), scene.now)
    assert scene.look() == {A: FILE}


def test_a_reload_goes_to_the_agent_and_a_failed_load_is_tried_again() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished())
    scene.look()
    assert scene.fleet.reload(AgentId("a"), 9.0, scene.now) == [Send(A, Reload(drain_timeout=9.0))]
    failed = status(slots=0, model=None, work=work("failed", wished().assignment, revision=1))
    scene.tell(A, failed)
    assert scene.look() == {}
    assert scene.state_of("a") == "failed"
    assert scene.fleet.reload(AgentId("a"), 9.0, scene.now) == []
    assert scene.look() == {A: FILE}


def test_a_load_that_failed_a_moment_ago_is_tried_again_as_well() -> None:
    """The failure is in no look yet, which is when the operator has seen it already."""
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished())
    scene.look()
    scene.tell(A, status(slots=0, model=None, work=work("failed", wished().assignment, revision=1)))
    scene.fleet.reload(AgentId("a"), 9.0, scene.now)
    assert scene.look() == {A: FILE}


@pytest.mark.parametrize("name", ["cordon", "resume", "reload"])
def test_an_agent_that_is_not_here(name: str) -> None:
    scene = Steered()
    arguments = (scene.now,) if name == "resume" else (1.0, scene.now)
    with pytest.raises(NotFound, match="no agent `nobody` is connected"):
        getattr(scene.fleet, name)(AgentId("nobody"), *arguments)


# ---- what is seen


def test_an_agent_that_goes_down_is_told_nothing() -> None:
    scene = Steered()
    scene.join(A, hello("a", work=work("serving")))
    scene.tell(A, status(accepting=False, work=work("serving")))
    scene.wish(wished(source="file:///new.gguf"))
    assert scene.look() == {}


def test_a_pinned_agent_is_told_nothing() -> None:
    scene = Steered()
    scene.join(A, hello("a", facts=HostFacts(is_pinned=True)))
    scene.wish(wished(source="file:///new.gguf"))
    assert scene.look() == {}


def test_a_balancer_that_goes_down_tells_nobody_anything() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished())
    scene.fleet.drain(scene.now, scene.now + 10.0)
    assert scene.look() == {}


def test_a_change_rolls_over_the_agents() -> None:
    scene = Steered()
    old, new = wished(), wished(source="file:///new.gguf")
    for link, id in ((A, "a"), (B, "b")):
        scene.join(link, hello(id, work=work("serving", old.assignment)))
    scene.wish(new)
    [(first, source)] = scene.look().items()
    assert source == "file:///new.gguf"
    assert scene.look() == {}
    scene.serve(first, new.assignment, 2)
    [(second, _)] = scene.look().items()
    assert second != first


def test_progress_of_a_download_is_no_reason_to_look() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    agent = scene.fleet.state.registry[A]
    fetching = status(model=None, work=work("fetching"))
    assert may_need_order(agent, fetching)
    scene.tell(A, fetching)
    assert fetching.work is not None
    further = replace(fetching.work, download=Download(file="m", bytes=1), progress=0.1)
    assert not may_need_order(agent, replace(fetching, work=further))
    assert may_need_order(agent, status(model=None, work=work("loading")))
    view = seen(scene.fleet, scene.now).agent(AgentId("a"))
    assert view is not None
    assert view.work == fetching.work


def test_a_dry_run_changes_nothing() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    [plan] = seen(scene.fleet, scene.now).dry_run(DesiredState(models=(wished(),))).agents
    assert (plan.action, plan.model) == ("load", "llama")
    assert scene.fleet.steering.desired is None
    assert scene.look() == {}


def test_takes_over_without_an_old_link_is_a_plain_hello() -> None:
    scene = Steered()
    scene.join(A, hello("a", takes_over=True))
    assert started(scene.open("r")) == [(A, "r")]


# ---- how far a load is


def test_the_progress_of_a_load_is_always_as_of_now() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished())
    scene.look()
    loading = replace(work("loading", wished().assignment, revision=1), progress=0.0)
    scene.tell(A, status(slots=0, model=None, work=loading))
    scene.look()
    scene.open("r", model="llama")
    scene.now += 4.0
    scene.tell(A, status(slots=0, model=None, work=replace(loading, progress=0.4)))
    [model] = seen(scene.fleet).models()
    assert (model.status, model.progress) == ("loading", pytest.approx(0.7))
    assert seen(scene.fleet, scene.now).waiting(RequestId("r")) == Waiting(
        1, "model", 7.0, "agent host-a is still loading the model"
    )


def test_a_request_for_any_model_waits_for_the_first_one() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished())
    scene.open("r")
    scene.look()
    download = Download(file="m", bytes=1, seconds_left=90.0)
    fetching = replace(work("fetching", wished().assignment, revision=1), download=download)
    scene.tell(A, status(slots=0, model=None, work=fetching))
    assert seen(scene.fleet, scene.now).waiting(RequestId("r")) == Waiting(
        1, "model", 90.0, "agent host-a is still loading the model"
    )
    scene.leave(A)
    assert seen(scene.fleet, scene.now).waiting(RequestId("r")) == Waiting(
        1, "model", None, "no agent is connected"
    )


def test_what_an_old_process_runs_keeps_its_agent_busy() -> None:
    scene = Steered()
    scene.join(A, hello("a"))
    scene.open("r1")
    scene.join(B, hello("a", takes_over=True))
    scene.open("r2")

    def num_busy() -> int:
        view = seen(scene.fleet, scene.now).agent(AgentId("a"))
        assert view is not None
        return view.slots.busy

    assert num_busy() == 2
    scene.fleet.cordon(AgentId("a"), 5.0, scene.now)
    scene.say(B, ended("r2"))
    assert (num_busy(), scene.state_of("a")) == (1, "draining")
    scene.after(5.0)
    assert (num_busy(), scene.state_of("a")) == (1, "draining")
    scene.say(A, ended("r1", "cancelled"))
    assert (num_busy(), scene.state_of("a")) == (0, "drained")


# ---- what others have of a host's memory


def measuring(
    *devices: DeviceMemory, model: str | None = "llama", phase: Phase = "serving"
) -> Agent:
    one = Agent(
        LinkId(1), hello("a"), 1, None, 0.0, HeartbeatMonitor(0.0, interval=1.0, timeout=5.0)
    )
    said = status(model=model, work=work(phase, IN_USE.assignment))
    if said.model is not None:
        parts = (MemoryPart(device="CUDA0", bytes=3), MemoryPart(device="CPU", bytes=2))
        said = replace(said, model=replace(said.model, memory=parts))
    one.changed(said)
    one.statistics = Statistics(devices=devices)
    return one


def test_others_have_what_the_driver_says_or_what_is_not_of_the_models_here() -> None:
    told = DeviceMemory(name="CUDA0", kind="gpu", total=24, free=4, others=9)
    untold = replace(told, others=None)
    host = DeviceMemory(name="CPU", kind="cpu", total=64, free=63)
    assert memory_of_others([measuring(told, host)]) == {"CUDA0": 9}
    assert memory_of_others([measuring(untold, host)]) == {"CUDA0": 17}
    assert memory_of_others([measuring(untold), measuring()]) == {"CUDA0": 14}, "of both models"
    assert memory_of_others([measuring(told, replace(host, free=50))]) == {"CUDA0": 9, "CPU": 12}
    assert memory_of_others([measuring()]) == {}


@pytest.mark.parametrize("phase", ["loading", "draining"])
def test_what_comes_or_goes_is_not_taken_for_others(phase: Phase) -> None:
    untold = DeviceMemory(name="CUDA0", kind="gpu", total=24, free=4)
    here = [measuring(untold), measuring(model=None, phase=phase)]
    assert memory_of_others(here) == {}
    here = [measuring(replace(untold, others=9)), measuring(model=None, phase=phase)]
    assert memory_of_others(here) == {"CUDA0": 9}


def test_a_model_goes_where_its_memory_is_free() -> None:
    scene = Steered()
    card = HostFacts(devices=(Device(name="CUDA0", memory=24),), memory=64)
    full = DeviceMemory(name="CUDA0", kind="gpu", total=24, free=1, others=23)
    for link, id in ((A, "a"), (B, "b")):
        scene.join(link, hello(id, model=None, slots=0, facts=card))
    scene.fleet.agent_said(A, Statistics(devices=(full,)), scene.now)
    scene.wish(wished(replicas=1))
    assert scene.look() == {B: FILE}


def said(phase: Phase, progress: float | None = None, **fields: object) -> Work:
    return Work(revision=1, phase=phase, progress=progress, **fields)  # type: ignore[arg-type]


def after(*reports: tuple[float, Work | None]) -> LoadTimes:
    times = LoadTimes()
    for at, said_then in reports:
        times.reported(A, said_then, at)
    return times


def test_the_rest_takes_as_long_as_what_is_done_did() -> None:
    now = said("loading", 0.25)
    assert after((10.0, said("loading", 0.0)), (12.0, now)).seconds_left(A, now, 12.0) == 6.0


def test_one_that_dials_in_the_middle() -> None:
    now = said("loading", 0.6)
    times = after((10.0, said("loading", 0.5)), (12.0, now))
    assert times.seconds_left(A, now, 12.0) == pytest.approx(8.0)


def test_a_download_says_itself_how_long_it_takes() -> None:
    now = said("fetching", 0.5, download=Download(file="f", bytes=1, seconds_left=42.0))
    assert after((10.0, now)).seconds_left(A, now, 11.0) == 42.0


def test_what_has_hardly_begun_is_not_estimated() -> None:
    now = said("loading", 0.01)
    times = after((10.0, said("loading")), (11.0, now))
    assert times.seconds_left(A, now, 11.0) is None
    assert times.seconds_left(LinkId(2), now, 11.0) is None


def test_each_phase_is_measured_by_itself() -> None:
    now = said("loading", 0.5)
    times = after((10.0, said("fetching", 0.0)), (20.0, said("loading", 0.0)), (21.0, now))
    assert times.seconds_left(A, now, 21.0) == 1.0


@pytest.mark.parametrize("end", [said("serving"), said("failed"), None])
def test_an_agent_that_does_not_load_is_forgotten(end: Work | None) -> None:
    times = after((10.0, said("loading", 0.5)), (12.0, end))
    assert len(times) == 0
    assert times.seconds_left(A, end, 13.0) is None


def test_an_agent_that_leaves_is_forgotten() -> None:
    times = after((10.0, said("loading", 0.5)))
    times.left(A)
    assert len(times) == 0


NO_FILE = Issue(code="not_found", message="no such file", hint="check the path")


def failing(preload: bool = True) -> Steered:
    """The only agent could not load the model."""
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished(preload=preload, aliases=("gpt",)))
    return scene


def fails(scene: Steered, revision: int) -> list[Decision]:
    said = work("failed", wished().assignment, revision=revision)
    scene.tell(A, status(slots=0, model=None, work=said, issues=(NO_FILE,)))
    return scene.after(RECONCILE_PAUSE)


def test_requests_for_a_model_that_failed_to_load_are_refused_at_once() -> None:
    scene = failing()
    scene.look()
    assert scene.open("waits", model="gpt") == []
    assert scene.open("any") == []
    query = QueryRequest(kind="text", parts=(Tokenize(text="x"),), model="llama")
    scene.fleet.query_arrived(RequestId("query"), query, scene.now)
    ended = codes(fails(scene, 1))
    assert ended == dict.fromkeys(("waits", "any", "query"), "model_failed")
    why = "be served now: agent host-a: no such file; check the path"
    for model in ("gpt", "llama", None):
        error = refusal(scene.open("late", model=model))
        assert isinstance(error, ModelFailed)
        what = "no model can" if model is None else "the model `llama` cannot"
        assert error.message == f"{what} {why}"
        assert error.retry_after == pytest.approx(FIRST_RETRY)
    error = refusal(scene.fleet.query_arrived(RequestId("late"), query, scene.now))
    assert isinstance(error, ModelFailed)
    scene.wish(wished(source="file:///mended.gguf"))
    assert scene.open("r", model="llama") == [], "it is another file"


def test_after_the_pause_a_request_has_the_model_tried_again() -> None:
    scene = failing(preload=False)
    scene.look()
    scene.open("first", model="llama")
    assert scene.look() == {A: FILE}
    assert codes(fails(scene, 1)) == {"first": "model_failed"}
    scene.after(FIRST_RETRY)
    assert scene.open("again", model="llama") == []
    assert scene.look() == {A: FILE}
    done = scene.serve(A, wished(preload=False).assignment, 2)
    assert started(done) == [(A, "again")]


def test_where_no_agent_is_free_to_try_again_requests_do_not_wait() -> None:
    scene = failing(preload=False)
    scene.join(B, hello("b", model="own", facts=HostFacts(is_pinned=True)))
    scene.look()
    scene.open("first", model="llama")
    scene.look()
    fails(scene, 1)
    scene.fleet.cordon(AgentId("a"), None, scene.now)
    scene.after(FIRST_RETRY)
    assert scene.open("again", model="llama") == []
    assert codes(scene.after(RECONCILE_PAUSE)) == {"again": "model_failed"}
    error = refusal(scene.open("late", model="llama"))
    assert isinstance(error, ModelFailed)
    assert error.retry_after == pytest.approx(UNSCHEDULED)


def test_a_server_behind_an_agent_that_is_gone() -> None:
    scene = Steered()
    scene.join(A, forwarding("a", slots=1))
    scene.open("runs", "waits", model="llama")
    gone = replace(
        status(slots=0),
        model=forwarding("a").model,
        issues=(Issue(code="upstream_unreachable", message="it is away"),),
    )
    assert codes(scene.tell(A, gone)) == {}, "what was accepted waits for it"
    assert scene.state_of("a") == "failed"
    error = refusal(scene.open("late", model="llama"))
    assert isinstance(error, ModelFailed)
    [view] = seen(scene.fleet).models()
    assert (view.status, view.issues) == ("failed", gone.issues)
    full = replace(gone, issues=(replace(gone.issues[0], code="upstream_limit"),))
    scene.tell(A, full)
    assert scene.open("later", model="llama") == [], "it is full, and comes back"
    scene.join(B, hello("b"))
    assert scene.state_of("a") == "ready"


def on_host(name: str, model: str | None = "llama") -> Hello:
    """An agent of the host `h`."""
    return replace(hello(name, slots=1, model=model), host=AgentId("h"))


def test_a_drain_is_of_the_whole_host_and_of_what_joins_it_later() -> None:
    scene = Steered()
    scene.join(A, on_host("h"))
    scene.join(B, on_host("p2"))
    scene.fleet.cordon(AgentId("h"), None, scene.now)
    scene.join(C, on_host("p3"))
    assert scene.state_of("h") == "drained"
    assert started(scene.open("r1")) == []
    assert len(started(scene.fleet.resume(AgentId("p2"), scene.now))) == 1
    assert scene.state_of("h") == "ready"
    scene.open("r2", "r3")
    assert scene.fleet.state.registry.on_host(AgentId("h"))[2].takes_work


def test_what_runs_on_any_place_moves_at_the_deadline_of_a_drain() -> None:
    scene = Steered()
    scene.join(A, on_host("h"))
    scene.join(B, on_host("p2"))
    scene.open("r1", "r2")
    scene.fleet.cordon(AgentId("h"), 5.0, scene.now)
    cancelled = {each.link for each in scene.after(5.0) if isinstance(each, Send)}
    assert cancelled == {A, B}


def test_a_reload_is_of_all_models_of_a_host() -> None:
    scene = Steered()
    scene.join(A, on_host("h"))
    scene.join(B, on_host("p2"))
    reload = Reload(drain_timeout=9.0)
    given = scene.fleet.reload(AgentId("h"), 9.0, scene.now)
    assert given == [Send(A, reload), Send(B, reload)]


def test_a_host_that_two_keys_say_is_two_hosts_and_both_have_an_issue() -> None:
    scene = Steered()
    mine, other = (
        Identity(name=name, role="agent", limits=CallerLimits()) for name in ("mine", "other")
    )
    registry = scene.fleet.state.registry

    def issues() -> list[list[str]]:
        return [[each.code for each in agent.all_issues(scene.now)] for agent in registry]

    for link, place, holder in ((B, "p2", other), (A, "h", mine), (C, "p3", mine)):
        welcome = scene.join(link, on_host(place), holder=holder)[0]
        assert isinstance(welcome, Send) and isinstance(welcome.message, Welcome)
    assert registry.num_agents == 2
    assert sorted(len(registry.on_host(host)) for host in registry.hosts()) == [1, 2]
    assert issues() == [["identity_claimed"]] * 3
    scene.fleet.agent_left(B, scene.now)
    assert issues() == [[], []]
