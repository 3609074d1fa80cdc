"""The composed core: one example for each race and rule."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from arriero.balancer.control.controller import VERSIONS
from arriero.balancer.control.demand import Demand
from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.decisions import (
    Decision,
    Deliver,
    DeliverTokens,
    Disconnect,
    Finish,
    FirstToken,
    LinkId,
    Moved,
    ReadsLost,
    Refuse,
    Send,
)
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.recorder import Origin
from arriero.balancer.fleet.requests.eligibility import Engine
from arriero.balancer.fleet.requests.request import SUSPECT_SECONDS
from arriero.balancer.fleet.requests.requests import LEAST_PATIENCE
from arriero.balancer.fleet.view import Cordon, SharedCordon
from arriero.shared.continuation import Continuation
from arriero.shared.errors import (
    AgentLost,
    Cancelled,
    EngineFailed,
    NotFound,
    PromptTooLong,
    QueueFull,
    ShuttingDown,
)
from arriero.shared.inference import (
    AgentId,
    Begun,
    ChatMessage,
    Done,
    Event,
    GenerateRequest,
    LogProb,
    Notice,
    RequestId,
    Token,
    TokenKind,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
    Waiting,
)
from arriero.shared.inference.prefix_chain import chain_of
from arriero.shared.inference.prefix_peers import Peer
from arriero.shared.messages import (
    PROTOCOL_VERSION,
    Called,
    CallStarted,
    Evicted,
    Goodbye,
    Item,
    Lend,
    LogRead,
    Noticed,
    PromptRead,
    ReadLog,
    Reject,
    Start,
    Welcome,
    Withdraw,
)
from arriero.shared.models.assignments import Assign
from arriero.shared.reports.statistics import Statistics
from tests.balancer.fleet.builders import (
    busy,
    codes,
    delivered,
    ended,
    forwarding,
    hello,
    model_info,
    piece,
    refused,
    request,
    seen,
    sent,
    status,
    work,
)
from tests.balancer.fleet.core.counted_work import work_of_one
from tests.balancer.fleet.core.scene import (
    NO_HEARTBEATS,
    A,
    B,
    Scene,
    cancel,
    failure,
    start,
    with_agent,
)
from tests.balancer.fleet.core.test_steering import FILE, RECONCILE_PAUSE, Steered, wished

# ---- a request's way


HOST = Origin("host-a1", "llama")


def test_a_request_runs_and_is_measured() -> None:
    scene = with_agent()
    assert scene.open("r") == [Send(A, start("r"))]
    scene.now += 2.0
    assert scene.say(A, piece("r", "Once")) == [
        DeliverTokens(((RequestId("r"), Token("Once", "content", (0,))),), 1, (), HOST),
        FirstToken(2.0, HOST),
    ]
    scene.now += 0.5
    assert scene.say(A, piece("r", " upon")) == [
        DeliverTokens(((RequestId("r"), Token(" upon", "content", (0,))),), 1, (0.5,), HOST)
    ]
    decisions = scene.say(A, ended("r"))
    [(_, event)] = delivered(decisions)
    assert isinstance(event, Done)
    assert (event.finish_reason, event.agent) == ("stop", "host-a1")
    assert codes(decisions) == {"r": "stop"}
    assert scene.fleet.is_idle
    totals = seen(scene.fleet).totals()
    assert (totals.slots_busy, totals.tokens_total, totals.items_ignored) == (0, 2, 0)


def test_requests_wait_for_the_first_agent() -> None:
    scene = Scene()
    assert scene.open("1", "2", "3") == []
    welcome = Welcome(
        protocol=PROTOCOL_VERSION, version="9.9", heartbeat_interval=1e6, heartbeat_timeout=1e6
    )
    decisions = scene.join(A, hello("a1", slots=2))
    welcome = replace(welcome, secret=scene.secrets["a1"])
    assert decisions == [Send(A, welcome), Send(A, start("1")), Send(A, start("2"))]


def test_a_request_for_a_model_that_is_loading_or_remembered_waits_for_it() -> None:
    scene = Scene()
    scene.join(A, hello("a", model="other"))
    scene.join(B, hello("b", model="m", slots=1))
    scene.leave(B)
    assert sent(scene.open("while-gone", model="m")) == []
    scene.join(B, replace(hello("b", model=None, slots=0), loading=model_info("m")))
    assert sent(scene.open("while-loading", model="m")) == []
    assert seen(scene.fleet).totals().queue_depth == 2
    assert start("while-gone", "m") in sent(scene.join(LinkId(3), hello("b", model="m", slots=1)))
    assert start("while-loading", "m") in sent(scene.say(LinkId(3), ended("while-gone")))


def test_a_model_is_forgotten_and_what_waits_for_it_goes_on_waiting() -> None:
    scene = Scene(replace(NO_HEARTBEATS, model_memory=10.0, max_buffered_requests=8))
    scene.join(A, hello("a", model="other"))
    scene.join(B, hello("b", model="m"))
    scene.leave(B)
    scene.open("early", model="m")
    assert scene.fleet.next_deadline() == scene.now + 10.0
    assert scene.after(10.0) == []
    assert codes(scene.open("late", model="m")) == {"late": "model_not_found"}
    assert codes(scene.after(20.0)) == {"early": "queue_timeout"}


def test_what_fits_into_no_context_is_refused_before_it_waits() -> None:
    scene = with_agent(slots=1)
    scene.open("running")
    prompt = GenerateRequest(prompt=(1,) * 3_000_000)
    decisions = scene.fleet.request_arrived(RequestId("r"), prompt, scene.now)
    assert isinstance(decisions[0], Refuse)
    assert isinstance(decisions[0].error, PromptTooLong)
    assert "3000000 tokens > 2047 maximum" in decisions[0].error.message
    assert codes(decisions) == {"r": "prompt_too_long"}
    assert seen(scene.fleet).totals().queue_depth == 0


def test_a_refusal_is_told_and_recorded_and_leaves_nothing() -> None:
    scene = Scene(Limits(max_buffered_requests=0))
    decisions = scene.open("r")
    assert isinstance(decisions[0], Refuse)
    assert decisions[0].error.code == "queue_full"
    assert codes(decisions) == {"r": "queue_full"}
    assert scene.fleet.is_idle
    assert scene.fleet.next_deadline() is None


# ---- the client goes away


def test_gone_while_queued() -> None:
    scene = Scene()
    scene.open("1", "2")
    assert codes(scene.close("1")) == {"1": "client_gone"}
    assert sent(scene.join(A, hello()))[1:] == [start("2")]


@pytest.mark.parametrize("pieces", [0, 1])
def test_gone_while_running_frees_the_slot_at_once(pieces: int) -> None:
    scene = with_agent()
    scene.open("1", "2")
    scene.say(A, *[piece("1")] * pieces)
    decisions = scene.close("1")
    assert sent(decisions) == [cancel("1"), start("2")]
    assert delivered(decisions) == []
    assert codes(decisions) == {"1": "client_gone"}


def test_gone_just_when_the_end_arrives() -> None:
    scene = with_agent()
    scene.open("r")
    scene.say(A, ended("r"))
    assert scene.close("r") == []


# ---- the client cancels


def test_cancelling_all_starts_none_of_them() -> None:
    scene = with_agent(slots=2)
    scene.open("1", "2", "3", "4")
    decisions = scene.cancel("1", "2", "3", "4", "3", "unknown")
    assert sent(decisions) == [cancel("1"), cancel("2")]
    assert codes(decisions) == {"3": "cancelled", "4": "cancelled"}
    assert sent(scene.say(A, ended("1", "cancelled"), ended("2", "cancelled"))) == []
    assert scene.fleet.is_idle


def test_a_cancelled_request_ends_as_the_agent_answers() -> None:
    scene = with_agent()
    scene.open("r")
    scene.say(A, piece("r"))
    scene.cancel("r")
    assert len(delivered(scene.say(A, piece("r", "late")))) == 1
    [(_, event)] = delivered(scene.say(A, ended("r", "cancelled")))
    assert isinstance(event, Done)
    assert event.finish_reason == "cancelled"


def test_cancelling_twice_tells_the_agent_once() -> None:
    scene = with_agent()
    scene.open("r")
    assert sent(scene.cancel("r")) == [cancel("r")]
    assert sent(scene.cancel("r")) == []
    assert sent(scene.close("r")) == []


def test_busy_after_the_cancel_was_sent_ends_it() -> None:
    scene = with_agent()
    scene.open("r")
    scene.cancel("r")
    decisions = scene.say(A, busy("r"))
    assert failure(decisions, "r").code == "cancelled"
    assert sent(decisions) == []


def test_an_agent_lost_after_the_cancel_was_sent_ends_it() -> None:
    scene = with_agent()
    scene.join(B, hello("b"))
    scene.open("r")
    scene.cancel("r")
    decisions = scene.leave(A)
    assert failure(decisions, "r").code == "cancelled"
    assert sent(decisions) == []


def test_the_end_that_crossed_the_cancel_counts() -> None:
    scene = with_agent()
    scene.open("r")
    scene.cancel("r")
    assert codes(scene.say(A, ended("r", "length"))) == {"r": "length"}


# ---- what those who wait are told


def told_waiting(decisions: list[Decision]) -> dict[str, Waiting]:
    return {id: event for id, event in delivered(decisions) if isinstance(event, Waiting)}


def test_one_that_waits_is_told_its_place_and_when_it_will_start() -> None:
    scene = with_agent(slots=1)
    scene.open("0")
    scene.open("1", "2", "3", tell_waiting=0.5)
    before = scene.fleet.revision
    assert told_waiting(scene.after(0.5)) == {
        str(place): Waiting(place, "slot") for place in (1, 2, 3)
    }
    assert scene.fleet.revision == before, "nobody who watches the fleet hears of it"
    scene.now += 3.5
    assert told_waiting(scene.say(A, ended("0"))) == {}
    assert told_waiting(scene.after(1.0)) == {
        "2": Waiting(1, "slot", 4.0),
        "3": Waiting(2, "slot", 8.0),
    }


def test_one_that_starts_at_once_hears_nothing() -> None:
    scene = with_agent(slots=1)
    scene.open("0", tell_waiting=0.5)
    assert told_waiting(scene.after(1.0)) == {}


def test_a_full_queue_says_when_to_try_again() -> None:
    scene = with_agent(slots=1, limits=replace(NO_HEARTBEATS, max_buffered_requests=1))
    scene.open("0", "1")
    scene.now += 12.0
    scene.say(A, ended("0"))
    scene.open("2")
    [refusal] = [each for each in scene.open("3") if isinstance(each, Refuse)]
    assert isinstance(refusal.error, QueueFull)
    assert (refusal.error.retry_after, refusal.error.position) == (12.0, 2)


def test_one_that_comes_back_is_told_again() -> None:
    scene = with_agent(slots=1)
    scene.open("0", tell_waiting=0.5)
    scene.say(A, busy("0"))
    assert told_waiting(scene.fleet.tick(scene.now + 0.49)) == {}
    scene.fleet.cordon(AgentId("a1"), None, scene.now)
    drained = "agent host-a1 is drained (`arriero agents resume NAME`)"
    assert told_waiting(scene.after(0.5)) == {"0": Waiting(1, "model", None, drained)}


DELIVERED = (Begun(3, 1), Token("On", tokens=(4,)), Token("ce", tokens=(5, 6)))
ENGINE = Engine("llama", "f")


def resumed(scene: Scene, *events: Event, engine: Engine | None = None) -> list[Decision]:
    decisions = scene.fleet.request_resumed(
        RequestId("r"),
        request("llama"),
        scene.now,
        caller=ANONYMOUS,
        delivered=events,
        engine=engine,
        age=40.0,
    )
    scene.fleet.check_integrity()
    return decisions


def test_what_another_run_accepted_goes_on_where_its_client_is() -> None:
    scene = Scene()
    [moved] = resumed(scene, *DELIVERED, engine=ENGINE)
    assert moved == Moved(RequestId("r"), "restarted", Origin("", "llama"))
    assert seen(scene.fleet).engine_of(RequestId("r")) == ENGINE
    assert scene.join(B, hello("b1", fingerprint="other"))[1:] == []
    sent = [d.message for d in scene.join(A, hello("a1", fingerprint="f")) if isinstance(d, Send)]
    [begun] = [message for message in sent if isinstance(message, Start)]
    assert begun.continuation == Continuation.after((4, 5, 6), num_characters=4)
    told = delivered(scene.say(A, piece("r", " upon"), ended("r")))
    assert told[0] == ("r", Token(" upon", tokens=(0,)))
    end = told[1][1]
    assert isinstance(end, Done) and end.usage.prompt_tokens == 3
    assert (end.timings.moves, end.timings.first_token_ms) == (1, None)
    assert end.timings.total_ms == 40_000.0


def test_what_had_not_begun_begins_anew_at_any_agent() -> None:
    scene = Scene()
    assert resumed(scene, Begun(3, 1), engine=ENGINE) == []
    decisions = scene.join(A, hello("a1", fingerprint="other"))
    assert Send(A, start("r", "llama")) in decisions
    assert delivered(scene.say(A, piece("r"))) == [("r", Token("word", tokens=(0,)))]


def test_an_answer_that_nobody_can_go_on_with_ends() -> None:
    assert "restarted during" in failure(resumed(Scene(), *DELIVERED), "r").message
    scene = Scene()
    resumed(scene, *DELIVERED, engine=ENGINE)
    error = failure(scene.after(30.0), "r")
    assert "the balancer was restarted" in error.message and "30 s" in error.message


def test_no_queue_is_full_for_what_was_accepted_before() -> None:
    scene = Scene(replace(NO_HEARTBEATS, max_buffered_requests=0))
    assert resumed(scene) == []
    assert Send(A, start("r", "llama")) in scene.join(A, hello("a1"))


def test_a_request_costs_about_the_same_in_a_small_fleet_and_in_a_large_one() -> None:
    small, large = work_of_one(64), work_of_one(1024)
    assert small > 1000  # they are counted
    assert large < 1.2 * small


def lending(link: LinkId, address: str, scene: Scene) -> None:
    """An agent with a slot that lends and fetches, as its hello says."""
    peer = Peer(address=address, tls=False, cells="c", cell_bytes=1000)
    scene.join(link, replace(hello(address, slots=1), peer=peer))


def long_request(id: str, scene: Scene) -> list[Decision]:
    wanted = GenerateRequest(prompt="A long story. " * 500)
    return scene.fleet.request_arrived(RequestId(id), wanted, scene.now)


@pytest.mark.parametrize("secret", [b"secret", b""])
def test_a_prefix_of_a_full_agent_is_lent_to_a_free_one_where_there_are_tickets(
    secret: bytes,
) -> None:
    scene = Scene(ticket_secret=secret)
    lending(A, "a:1", scene)
    [started] = long_request("r", scene)
    assert isinstance(started, Send) and started.link == A
    assert isinstance(started.message, Start) and started.message.fetch is None
    lending(B, "b:1", scene)
    told = long_request("s", scene)
    start = told[-1]
    assert isinstance(start, Send) and isinstance(start.message, Start) and start.link == B
    if not secret:
        assert len(told) == 1 and start.message.fetch is None
        return
    [lent, _] = told
    assert isinstance(lent, Send) and isinstance(lent.message, Lend) and lent.link == A
    fetch = start.message.fetch
    assert fetch is not None
    assert (fetch.address, fetch.ticket) == ("a:1", lent.message.ticket)
    scene.fleet.check_integrity()


@pytest.mark.parametrize("was_one", [True, False])
def test_who_is_no_peer_is_told_of_none(was_one: bool) -> None:
    scene = Scene(ticket_secret=b"secret")
    lending(A, "a:1", scene)
    long_request("r", scene)
    if was_one:
        lending(B, "b:1", scene)
        scene.fleet.agent_said(B, status(1), scene.now)
    else:
        scene.join(B, hello("b", slots=1))
    [started] = long_request("s", scene)
    assert isinstance(started, Send) and started.link == B
    assert isinstance(started.message, Start) and started.message.fetch is None


# ---- deadlines


def test_waiting_ends_at_the_deadline() -> None:
    scene = Scene()
    scene.open("r")
    assert scene.fleet.next_deadline() == scene.now + 30.0
    assert scene.after(29.9) == []
    assert failure(scene.after(0.1), "r").code == "queue_timeout"
    assert scene.fleet.next_deadline() is None


@pytest.mark.parametrize(
    "frees",
    [
        lambda scene: scene.say(A, ended("1")),
        lambda scene: scene.close("1"),
        lambda scene: scene.join(B, hello("b")),
        lambda scene: scene.fleet.agent_said(A, status(slots=2), scene.now),
    ],
)
def test_a_slot_that_frees_at_the_deadline_comes_too_late(
    frees: Callable[[Scene], list[Decision]],
) -> None:
    scene = with_agent()
    scene.open("1", "2")
    scene.say(A, piece("1"))
    for _ in range(6):
        scene.now += 5.0
        decisions = frees(scene) if scene.now == 130.0 else scene.say(A, piece("1"))
    assert failure(decisions, "2").code == "queue_timeout"
    assert start("2") not in sent(decisions)


def test_time_on_a_lost_agent_does_not_count_as_waiting() -> None:
    scene = Scene()
    scene.open("r")
    scene.after(25.0)
    scene.join(A, hello())
    scene.after(19.0)
    scene.leave(A)
    assert scene.after(4.9) == []
    assert failure(scene.after(0.1), "r").code == "queue_timeout"


def test_no_first_token() -> None:
    scene = with_agent()
    scene.open("1", "2")
    decisions = scene.after(20.0)
    assert failure(decisions, "1").code == "first_token_timeout"
    assert sent(decisions) == [cancel("1"), start("2")]


def test_silence_between_tokens_is_measured_from_the_last() -> None:
    scene = with_agent()
    scene.open("r")
    for _ in range(5):
        assert scene.after(9.0) == []
        scene.say(A, piece("r"))
    decisions = scene.after(10.0)
    assert failure(decisions, "r").code == "token_timeout"
    assert sent(decisions) == [cancel("r")]


def test_the_whole_request_has_its_time() -> None:
    scene = with_agent()
    scene.open("r")
    for _ in range(33):
        scene.after(9.0)
        scene.say(A, piece("r"))
    assert scene.after(2.9) == []
    assert failure(scene.after(0.1), "r").code == "request_timeout"


def test_next_deadline_is_never_late() -> None:
    scene = with_agent()
    scene.open("r")
    assert scene.fleet.next_deadline() == scene.now + LEAST_PATIENCE, "does the agent do anything?"
    assert scene.after(LEAST_PATIENCE) == [], "nobody else is there"
    scene.say(A, piece("r"))
    assert scene.fleet.next_deadline() == scene.now + LEAST_PATIENCE
    assert scene.after(LEAST_PATIENCE) == [], "its answer has begun"
    assert scene.fleet.next_deadline() == scene.now + 5.0, "ten seconds after the token"


# ---- heartbeats


def test_a_request_that_was_cancelled_before_all_of_it_was_sent_ends_as_cancelled() -> None:
    scene = with_agent()
    scene.open("r")
    assert scene.cancel("r") == [Send(A, cancel("r"))]
    decisions = scene.say(A, refused("r", Cancelled("cancelled before it started")))
    assert failure(decisions, "r") == Cancelled("cancelled before it started")
    assert scene.fleet.is_idle


# ---- the end


def test_draining_refuses_the_new_and_finishes_the_old() -> None:
    scene = with_agent()
    scene.open("1", "2")
    assert scene.drain(60.0) == []
    decisions = scene.open("3")
    assert isinstance(decisions[0], Refuse)
    assert decisions[0].error.code == "shutting_down"
    assert sent(scene.say(A, ended("1"))) == [start("2")]
    scene.say(A, ended("2"))
    assert scene.fleet.is_idle
    assert scene.fleet.next_deadline() == 100.0 + 1e6, "only the heartbeat is left"


def test_draining_does_not_wait_for_agents_that_may_never_come() -> None:
    scene = Scene()
    scene.open("r")
    assert failure(scene.drain(60.0), "r").code == "shutting_down"


def test_draining_ends_who_waits_when_the_last_agent_for_them_goes() -> None:
    scene = with_agent()
    scene.open("1", "2")
    scene.drain(60.0)
    decisions = scene.leave(A)
    assert codes(decisions) == {"1": "shutting_down", "2": "shutting_down"}


def test_the_drain_deadline_ends_the_rest() -> None:
    scene = with_agent()
    scene.open("1", "2")
    scene.drain(4.0)
    assert scene.fleet.next_deadline() == scene.now + 4.0
    decisions = scene.after(4.0)
    assert codes(decisions) == {"1": "shutting_down", "2": "shutting_down"}
    assert sent(decisions) == [cancel("1")]
    assert scene.fleet.is_idle


def test_goodbye_ends_everything_and_lets_nobody_in() -> None:
    scene = with_agent()
    scene.open("1", "2")
    decisions = scene.fleet.goodbye(scene.now)
    assert codes(decisions) == {"1": "shutting_down", "2": "shutting_down"}
    assert decisions[-2:] == [
        Send(A, Goodbye()),
        Disconnect(A, "the balancer is shutting down"),
    ]
    rejection = sent(scene.join(B, hello("b")))
    assert rejection == [Reject(reason="the balancer is shutting down", retry=True)]
    assert scene.fleet.next_deadline() is None


NOBODY = AgentId("nobody")
READ = RequestId("read")


def test_an_agent_that_is_not_here_is_named() -> None:
    fleet = Scene().fleet
    for ask in (
        lambda: fleet.cordon(NOBODY, None, 0.0),
        lambda: fleet.resume(NOBODY, 0.0),
        lambda: fleet.reload(NOBODY, 1.0, 0.0),
        lambda: fleet.read_log(READ, NOBODY, 0, 0.0),
    ):
        with pytest.raises(NotFound, match="`nobody`"):
            ask()


def test_a_cordoned_agent_gets_nothing_until_it_is_resumed() -> None:
    scene = with_agent()
    scene.fleet.cordon(AgentId("a1"), None, scene.now)
    assert sent(scene.open("r")) == []
    assert sent(scene.fleet.resume(AgentId("a1"), scene.now)) == [start("r")]


# ---- several balancers: who leads tells agents what to serve, the others look on


def following() -> Steered:
    scene = Steered()
    scene.fleet.follow()
    scene.join_idle(A, "a")
    scene.wish(wished())
    return scene


def test_who_follows_tells_nothing_and_shows_the_same() -> None:
    scene = following()
    assert scene.look() == {}
    assert seen(scene.fleet).statuses()["llama"].status == "waiting"
    scene.serve(A, wished().assignment, VERSIONS + 1)
    assert scene.look() == {}
    assert seen(scene.fleet).statuses()["llama"].status == "loaded"


def test_who_leads_numbers_orders_by_its_epoch() -> None:
    scene = following()
    scene.fleet.lead(3, scene.now)
    scene.now += RECONCILE_PAUSE
    [told] = [
        each.message
        for each in scene.fleet.tick(scene.now)
        if isinstance(each, Send) and isinstance(each.message, Assign)
    ]
    assert told.revision == 3 * VERSIONS + 1


def test_who_is_made_leader_repeats_nothing() -> None:
    scene = following()
    scene.serve(A, wished().assignment, VERSIONS + 1)
    scene.fleet.lead(2, scene.now)
    assert scene.look() == {}


def test_who_was_leader_is_silent_once_an_agent_knows_a_later_one() -> None:
    scene = following()
    scene.fleet.lead(2, scene.now)
    scene.serve(A, wished().assignment, 3 * VERSIONS + 1)
    scene.look()
    assert seen(scene.fleet).outbid == 3
    scene.join_idle(B, "b")
    assert scene.look() == {}
    scene.fleet.lead(4, scene.now)
    assert scene.look() == {B: FILE}


def test_requests_at_other_balancers_have_a_model_loaded() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished(preload=False))
    assert scene.look() == {}
    scene.fleet.others(2, {"llama": Demand(1, scene.now)}, scene.now)
    assert scene.look() == {A: FILE}


def test_what_waits_here_is_told_without_what_others_told() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished(preload=False))
    scene.fleet.others(2, {"llama": Demand(5, scene.now)}, scene.now)
    scene.open("r")
    assert seen(scene.fleet, scene.now).waiting_by_model() == {"llama": (1, 0.0)}


def test_a_model_that_works_for_other_balancers_is_not_unloaded() -> None:
    scene = Steered()
    scene.join(A, hello("a", model=None, slots=0))
    model = wished(preload=False, idle_timeout=10.0)
    scene.wish(model)
    scene.open("r")
    assert scene.look() == {A: FILE}
    scene.serve(A, model.assignment, 1)
    scene.fleet.close("r", scene.now)  # type: ignore[arg-type]
    for running in (1, 0):
        scene.now += 9.0
        scene.fleet.agent_said(A, Statistics(num_running=running), scene.now)
        assert scene.look() == {}
    scene.now += 1.0
    assert scene.look() == {}, "the last look at work was a moment ago"
    scene.now += 10.0
    assert scene.look() == {A: None}


def test_an_operator_at_another_balancer_may_have_it_tried_again() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished())
    assert scene.look() == {A: FILE}
    failed = work("failed", wished().assignment, revision=1)
    scene.tell(A, status(model=None, slots=0, work=failed))
    assert scene.look() == {}
    scene.fleet.retry_agent(AgentId("nobody"), scene.now)
    assert scene.look() == {}
    scene.fleet.retry_agent(AgentId("a"), scene.now)
    assert scene.look() == {A: FILE}


def test_cordons_are_as_other_balancers_want_them() -> None:
    scene = Steered()
    scene.join(A, hello("a"))
    scene.fleet.apply_cordons([SharedCordon(Cordon(AgentId("a"), "a"))], scene.now)
    assert scene.state_of("a") == "drained"
    scene.fleet.apply_cordons([SharedCordon(Cordon(AgentId("a"), "a"))], scene.now)
    assert scene.state_of("a") == "drained"
    scene.fleet.apply_cordons([], scene.now)
    assert scene.state_of("a") == "ready"


def test_a_deadline_of_another_balancers_drain_is_met_here_until_it_is_taken_back() -> None:
    scene = Steered()
    scene.join(A, hello("a"))
    cordon = Cordon(AgentId("a"), "a")
    for within, deadline in ((5.0, scene.now + 5.0), (9.0, scene.now + 9.0), (None, None)):
        scene.fleet.apply_cordons([SharedCordon(cordon, within)], scene.now)
        assert scene.fleet.steering.cordons.next_deadline() == deadline


def test_a_cordon_of_an_agent_that_has_started_again_since() -> None:
    scene = Steered()
    scene.join(A, hello("new"))
    name = seen(scene.fleet, scene.now).agent(AgentId("new")).name  # type: ignore[union-attr]
    scene.fleet.apply_cordons([SharedCordon(Cordon(AgentId("old"), name))], scene.now)
    assert scene.state_of("new") == "drained"
    scene.fleet.apply_cordons([SharedCordon(Cordon(AgentId("old"), name))], scene.now)
    assert scene.state_of("new") == "drained"


def test_a_cordon_of_an_agent_that_is_not_here_waits_for_it() -> None:
    scene = Steered()
    scene.fleet.apply_cordons([SharedCordon(Cordon(AgentId("a"), "x"))], scene.now)
    scene.join(A, hello("a"))
    assert scene.state_of("a") == "drained"


R = RequestId("r")


def read(scene: Scene, id: RequestId) -> None:
    [asked] = scene.fleet.read_log(id, AgentId("a"), 4, scene.now, wait=True)
    assert asked == Send(A, ReadLog(id=id, after=4, wait=True))


def test_a_read_that_is_given_up_is_withdrawn_and_an_answered_one_is_not() -> None:
    scene = Scene()
    scene.join(A, hello("a"))
    read(scene, R)
    assert scene.fleet.stop_reading(R, scene.now) == [Send(A, Withdraw(id=R))]
    assert scene.fleet.stop_reading(R, scene.now) == []
    read(scene, R)
    scene.fleet.agent_said(A, LogRead(id=R), scene.now)
    assert scene.fleet.stop_reading(R, scene.now) == []


def test_reads_end_with_their_link() -> None:
    scene = Scene()
    scene.join(A, hello("a"))
    read(scene, R)
    assert ReadsLost((R,)) in scene.leave(A)
    assert scene.fleet.stop_reading(R, scene.now) == []


def test_reads_end_when_another_process_takes_over() -> None:
    scene = Scene()
    scene.join(A, hello("a"))
    read(scene, R)
    assert ReadsLost((R,)) in scene.join(B, hello("a", takes_over=True))


def test_what_an_agent_evicted_is_not_believed_to_be_there() -> None:
    scene = with_agent()
    wanted = GenerateRequest(prompt="The mules rest before each bridge. " * 20)
    scene.fleet.request_arrived(RequestId("r"), wanted, scene.now)
    keys = chain_of(wanted).keys
    scene.fleet.agent_said(A, Evicted(keys=keys[-2:]), scene.now)
    view = seen(scene.fleet, scene.now).view().routing
    assert (view.num_beliefs, view.num_evicted) == (len(keys) - 2, 2)
    scene.fleet.agent_said(A, Evicted(everything=True), scene.now)
    view = seen(scene.fleet, scene.now).view().routing
    assert (view.num_beliefs, view.num_evicted) == (0, len(keys))


def test_what_a_client_should_know_is_passed_on() -> None:
    scene = with_agent()
    scene.open("r")
    noticed = Noticed(id=RequestId("r"), code="n_discard_clamped", message="too many")
    assert scene.say(A, noticed) == [
        Deliver(RequestId("r"), Notice("n_discard_clamped", "too many"))
    ]


def test_what_a_client_heard_is_not_told_again_by_the_next_agent() -> None:
    scene = with_agent()
    scene.open("r")
    id = RequestId("r")
    noticed = Noticed(id=id, code="n_discard_clamped", message="too many")
    scene.say(A, noticed, PromptRead(id=id, prompt_tokens=7, cached_tokens=3))
    scene.join(B, hello("a2"))
    assert sent(scene.leave(A)) == [start("r")]
    other = replace(noticed, message="far too many")
    read = PromptRead(id=id, prompt_tokens=7, cached_tokens=0)
    assert scene.say(B, noticed, other, read) == [
        Deliver(id, Notice("n_discard_clamped", "far too many"))
    ]
    assert len(delivered(scene.say(B, piece("r"), noticed))) == 1


def test_without_a_fingerprint_an_answer_that_has_begun_ends() -> None:
    scene = with_agent()
    scene.open("r")
    scene.say(A, CallStarted(id=RequestId("r"), call_id="c", name="f"))
    assert seen(scene.fleet, scene.now).view().requests[0].state == "streaming"
    scene.join(B, hello("a2"))
    assert codes(scene.leave(A)) == {"r": "agent_lost"}


def test_an_answer_goes_on_after_what_was_delivered() -> None:
    scene = with_agent(fingerprint="f")
    id = RequestId("r")
    asked = replace(request(), logprobs=True, prompt_logprobs=True)
    scene.fleet.request_arrived(id, asked, scene.now)
    scene.say(A, piece("r", "Once", "prompt", num_tokens=0))
    scene.say(A, piece("r", "ab", num_tokens=2), piece("r", "", num_tokens=1))
    scene.say(A, CallStarted(id=id, call_id="c", name="f"), piece("r", "{", "tool_call"))
    scene.join(B, hello("b", fingerprint="f"))
    moved, started = scene.leave(A)
    assert moved == Moved(id, "lost", HOST)
    assert started == Send(
        B,
        replace(
            start("r"),
            request=asked,
            continuation=Continuation.after(
                [0, 1, 0, 0], num_characters=3, num_prompt_characters=4, num_calls_started=1
            ),
        ),
    )
    assert seen(scene.fleet, scene.now).view().requests[0].moves == 1
    assert [event for _, event in delivered(scene.say(B, piece("r", "}", "tool_call")))] == [
        Token("}", "tool_call", (0,))
    ]


def test_an_answer_waits_for_an_agent_of_the_same_fingerprint() -> None:
    scene = with_agent(fingerprint="f")
    scene.open("r")
    scene.say(A, piece("r"))
    scene.join(B, hello("b", fingerprint="g"))
    assert sent(scene.leave(A)) == []
    assert seen(scene.fleet, scene.now).view().requests[0].state == "queued"
    assert codes(scene.after(29.0)) == {}
    assert codes(scene.after(1.0)) == {"r": "agent_lost"}


def test_a_fingerprint_that_comes_later_counts() -> None:
    scene = with_agent()
    scene.open("r")
    scene.say(A, piece("r"))
    scene.fleet.agent_said(A, status(1, fingerprint="f"), scene.now)
    scene.leave(A)
    scene.join(B, hello("b"))
    [given] = sent(scene.fleet.agent_said(B, status(1, fingerprint="f"), scene.now))
    assert isinstance(given, Start) and given.continuation is not None


BY_TEXT = "text:f"
"""The fingerprint of agents whose servers go on by text."""

GONE = AgentLost("the upstream server was lost")


def test_by_text_an_answer_goes_on_when_an_agent_or_its_server_is_lost() -> None:
    scene = with_agent(fingerprint=BY_TEXT)
    scene.open("r")
    scene.join(B, hello("b", fingerprint=BY_TEXT))
    scene.say(A, piece("r", "He"), piece("r", "llo"))
    moved, started = scene.say(A, refused("r", GONE))
    assert moved == Moved(RequestId("r"), "lost", HOST)
    rest = Continuation(text="Hello", num_tokens=2, num_characters=5)
    assert started == Send(B, replace(start("r"), continuation=rest))
    scene.say(B, piece("r", "!"))
    scene.leave(B)
    assert sent(scene.after(1.0)) == [
        replace(
            start("r"),
            continuation=Continuation(text="Hello!", num_tokens=3, num_characters=6),
        )
    ], "the agent whose server was lost has rested"


def test_by_text_no_more_than_three_servers_are_tried() -> None:
    scene = with_agent(fingerprint=BY_TEXT)
    scene.open("r")
    for _ in range(2):
        scene.say(A, piece("r", "a"))
        assert codes(scene.say(A, refused("r", GONE))) == {}
        scene.after(1.0)
    scene.say(A, piece("r", "a"))
    assert codes(scene.say(A, refused("r", GONE))) == {"r": "agent_lost"}


def test_a_server_that_does_not_go_on_ends_the_request() -> None:
    scene = with_agent(fingerprint=BY_TEXT)
    scene.open("r")
    scene.join(B, hello("b", fingerprint=BY_TEXT))
    scene.say(A, piece("r", "a"))
    scene.leave(A)
    assert failure(scene.say(B, refused("r", GONE)), "r") == GONE


@pytest.mark.parametrize("kind", ["reasoning", "tool_call"])
def test_by_text_only_plain_text_goes_on(kind: TokenKind) -> None:
    scene = with_agent(fingerprint=BY_TEXT)
    scene.open("r")
    scene.join(B, hello("b", fingerprint=BY_TEXT))
    if kind == "tool_call":
        scene.say(A, CallStarted(id=RequestId("r"), call_id="c", name="f"))
    scene.say(A, piece("r", "hm", kind))
    assert failure(scene.say(A, refused("r", GONE)), "r") == GONE


def test_who_goes_on_by_ids_gets_no_text() -> None:
    scene = with_agent(fingerprint=BY_TEXT)
    scene.open("r")
    scene.join(B, hello("b", fingerprint="f"))
    scene.say(A, refused("r", ShuttingDown("not there")))
    scene.say(B, piece("r", "a"))
    scene.leave(B)
    assert seen(scene.fleet, scene.now).view().requests[0].state == "queued"
    decisions = scene.join(LinkId(3), hello("c", fingerprint="f"))
    rest = Continuation.after((0,), num_characters=1)
    assert replace(start("r"), continuation=rest) in sent(decisions)


HELLO = Continuation(text="Hello", num_tokens=2, num_characters=5)


def started_after(decisions: list[Decision], link: LinkId, rest: Continuation | None) -> bool:
    return Send(link, replace(start("r"), continuation=rest)) in decisions


def test_an_engines_answer_goes_on_at_a_server_of_the_same_model() -> None:
    scene = with_agent(fingerprint="f")
    scene.open("r")
    scene.join(B, forwarding("b"))
    scene.join(LinkId(3), hello("c", fingerprint="g"))
    scene.say(A, piece("r", "He"), piece("r", "llo"))
    assert started_after(scene.leave(A), B, HELLO), "and not at an engine with other weights"


def test_a_servers_answer_goes_on_at_an_engine_of_the_same_model() -> None:
    scene = Scene()
    scene.join(A, forwarding("a", fingerprint=None))
    scene.open("r")
    scene.say(A, piece("r", "He"), piece("r", "llo"))
    scene.leave(A)
    scene.join(B, hello("b", model="other", fingerprint="h"))
    decisions = scene.join(LinkId(3), hello("c", fingerprint="g"))
    assert started_after(decisions, LinkId(3), HELLO)
    scene.say(LinkId(3), piece("r", "!"))
    scene.leave(LinkId(3), hung_up=True)
    rest = Continuation(text="Hello!", num_tokens=3, num_characters=6)
    fourth = LinkId(4)
    assert started_after(scene.join(fourth, hello("d", fingerprint="g")), fourth, rest)


def test_an_engine_of_the_same_kind_is_waited_for_while_it_is_here() -> None:
    scene = with_agent(fingerprint="f")
    scene.open("r")
    third = LinkId(3)
    scene.join(third, hello("c", slots=1, fingerprint="f"))
    scene.open("other")
    scene.join(B, forwarding("b"))
    scene.say(A, piece("r", "He"), piece("r", "llo"))
    scene.now += 2 * SUSPECT_SECONDS
    assert sent(scene.leave(A)) == []
    assert started_after(scene.leave(third), B, HELLO), "it has left as well"


def test_an_engine_of_the_same_kind_that_comes_first_goes_on_by_ids() -> None:
    scene = with_agent(fingerprint="f")
    scene.open("r")
    scene.say(A, piece("r", "Hello", num_tokens=2))
    scene.leave(A)
    rest = Continuation.after((0, 1), num_characters=5)
    assert started_after(scene.join(B, hello("b", fingerprint="f")), B, rest)


def test_an_answer_that_the_next_engine_did_not_start_goes_on_at_a_server() -> None:
    scene = with_agent(fingerprint="f")
    scene.open("r")
    scene.say(A, piece("r", "He"), piece("r", "llo"))
    scene.join(B, hello("b", fingerprint="f"))
    scene.leave(A)
    scene.say(B, busy("r"))
    scene.leave(B)
    third = LinkId(3)
    assert started_after(scene.join(third, forwarding("c")), third, HELLO)


def test_a_server_that_cannot_go_on_gets_no_answer_that_has_begun() -> None:
    scene = with_agent(fingerprint="f")
    chat = GenerateRequest(messages=(ChatMessage(role="user", content="hi"),), model="llama")
    scene.fleet.request_arrived(RequestId("r"), chat, scene.now)
    scene.join(B, forwarding("b", abilities=("messages", "prompt")))
    scene.say(A, piece("r", "He"))
    scene.leave(A)
    assert seen(scene.fleet, scene.now).view().requests[0].state == "queued"
    [start] = [m for m in sent(scene.join(LinkId(3), forwarding("c"))) if isinstance(m, Start)]
    assert start.continuation == Continuation(text="He", num_tokens=1, num_characters=2)


def test_what_a_server_lacks_keeps_an_engines_answer_away_from_it() -> None:
    scene = with_agent(fingerprint="f")
    wanted = replace(request("llama"), top_k=3)
    scene.fleet.request_arrived(RequestId("r"), wanted, scene.now)
    scene.say(A, piece("r", "He"))
    scene.leave(A)
    scene.join(B, forwarding("b"))
    assert seen(scene.fleet, scene.now).view().requests[0].state == "queued"
    able = ("messages", "prompt", "top_k")
    [start] = [
        m
        for m in sent(scene.join(LinkId(3), forwarding("c", abilities=able)))
        if isinstance(m, Start)
    ]
    assert start.continuation is not None and start.continuation.text == "He"


@pytest.mark.parametrize("reason", ["lost", "drained"])
def test_an_engine_that_is_drained_gives_its_answer_to_a_server(reason: str) -> None:
    scene = with_agent(fingerprint="f")
    scene.open("r")
    scene.say(A, piece("r", "a"))
    scene.join(B, forwarding("b"))
    if reason == "lost":
        assert sent(scene.leave(A)) != []
    else:
        scene.fleet.cordon(AgentId("a1"), 0.0, scene.now)
        assert sent(scene.say(A, ended("r", "cancelled"))) != []
    assert seen(scene.fleet, scene.now).view().requests[0].agent == "b"


def test_silence_after_a_call_has_begun_is_measured_from_there() -> None:
    scene = with_agent()
    scene.open("r")
    scene.now += 15.0
    scene.say(A, CallStarted(id=RequestId("r"), call_id="c", name="f"))
    assert codes(scene.after(9.0)) == {}
    assert codes(scene.after(1.0)) == {"r": "token_timeout"}


def test_what_an_agent_tells_beside_the_text_is_passed_on() -> None:
    scene = with_agent()
    scene.open("r")
    id = RequestId("r")
    started = CallStarted(id=id, call_id="c", name="f")
    called = Called(id=id, call_id="c", name="f", arguments="{}")
    read = PromptRead(id=id, prompt_tokens=7, cached_tokens=3)
    assert scene.say(A, read, started, called) == [
        Deliver(id, Begun(7, 3)),
        Deliver(id, ToolCallStarted("c", "f")),
        FirstToken(0.0, HOST),
        Deliver(id, ToolCall("c", "f", "{}")),
    ]


def test_an_agents_error_goes_to_the_client() -> None:
    scene = with_agent()
    scene.open("r")
    error = PromptTooLong("2049 tokens, at most 2048", field="prompt")
    assert failure(scene.say(A, refused("r", error)), "r") == error


def test_what_comes_for_one_that_is_gone_is_ignored_and_counted() -> None:
    scene = with_agent()
    scene.open("1")
    scene.close("1")
    scene.open("2")
    late: list[Item] = [
        piece("1"),
        busy("1"),
        ended("1", "cancelled"),
        refused("1", EngineFailed("x")),
    ]
    assert scene.say(A, *late) == []
    assert seen(scene.fleet).totals().items_ignored == 4
    assert sent(scene.say(A, ended("2"))) == []


def test_busy_goes_to_another_agent_or_back_to_the_head() -> None:
    scene = with_agent()
    scene.open("1", "2")
    assert sent(scene.say(A, busy("1"))) == []
    scene.join(B, hello("b", slots=1))
    assert seen(scene.fleet, scene.now).view().requests[0].agent == "b"
    assert sent(scene.say(B, ended("1"))) == [start("2")]


@pytest.mark.parametrize("fingerprint", [None, "f"])
@pytest.mark.parametrize("pieces", [0, 1])
def test_agents_that_stop_give_back_what_another_can_go_on_with(
    pieces: int, fingerprint: str | None
) -> None:
    scene = with_agent(fingerprint=fingerprint)
    scene.open("r")
    scene.say(A, *[piece("r")] * pieces)
    scene.join(B, hello("b", fingerprint=fingerprint))
    decisions = scene.say(A, refused("r", ShuttingDown("shutting down")))
    if not pieces:
        assert decisions == [Send(B, start("r"))]
    elif fingerprint is None:
        assert failure(decisions, "r").code == "shutting_down"
    else:
        moved, started = decisions
        assert moved == Moved(RequestId("r"), "given_back", HOST)
        assert isinstance(started, Send) and started.link == B


def test_an_agent_that_has_no_slot_for_an_answer_leaves_it_to_the_next() -> None:
    scene = with_agent(fingerprint="f")
    scene.open("r")
    scene.say(A, piece("r"))
    scene.join(B, hello("b", fingerprint="f"))
    scene.leave(A)
    scene.join(LinkId(3), hello("c", fingerprint="f"))
    [given] = scene.say(B, busy("r"))
    assert isinstance(given, Send) and given.link == LinkId(3)
    assert isinstance(given.message, Start) and given.message.continuation is not None


def test_busy_in_the_middle_of_an_answer_is_a_failure() -> None:
    scene = with_agent()
    scene.open("r")
    scene.say(A, piece("r"))
    assert failure(scene.say(A, busy("r")), "r").code == "engine_failed"


def test_an_agent_cannot_touch_the_requests_of_another() -> None:
    scene = with_agent()
    scene.open("r")
    scene.join(B, hello("b"))
    theft: list[Item] = [piece("r"), ended("r"), busy("r"), refused("r", EngineFailed("x"))]
    assert scene.say(B, *theft) == []
    assert seen(scene.fleet).totals().items_ignored == 4
    assert codes(scene.say(A, ended("r"))) == {"r": "stop"}


def test_log_probabilities_are_delivered_with_their_token() -> None:
    scene = with_agent()
    scene.open("r")
    log_probs = (TokenLogProbs(LogProb(1, b"x", -0.5)),)
    [(_, token)] = delivered(scene.say(A, replace(piece("r", "x"), log_probs=log_probs)))
    assert isinstance(token, Token)
    assert token.log_probs == log_probs


def test_what_runs_under_an_adapter_counts_as_a_model_of_its_own() -> None:
    scene = with_agent(slots=3)
    said = status(slots=3, model="llama")
    assert said.model is not None
    scene.fleet.agent_said(
        A, replace(said, model=replace(said.model, adapters=("loud",))), scene.now
    )
    for id, model in (("q", "llama"), ("r", "llama:loud"), ("s", "llama:loud")):
        scene.open(id, model=model)
    told = scene.say(A, piece("q"), piece("r"), piece("s"), ended("q"), ended("r"))
    tokens = [each for each in told if isinstance(each, DeliverTokens)]
    assert [(each.origin.model, each.num_tokens) for each in tokens] == [
        ("llama", 1),
        ("llama:loud", 2),
    ]
    firsts = [each.origin.model for each in told if isinstance(each, FirstToken)]
    assert firsts == ["llama", "llama:loud", "llama:loud"]
    endings = [each.ending.model for each in told if isinstance(each, Finish)]
    assert endings == ["llama", "llama:loud"]


def test_pieces_of_a_step_are_delivered_at_once_and_around_other_items_in_order() -> None:
    scene = with_agent(slots=2)
    scene.open("q", "r")
    scene.say(A, piece("q"), piece("r"))
    scene.now += 0.5
    step = scene.say(A, piece("q", "a"), piece("r", "b"), ended("q"), piece("r", "c"), piece("q"))
    assert [type(each).__name__ for each in step] == [
        *("DeliverTokens", "Deliver", "Finish", "DeliverTokens"),
    ]
    assert step[0] == DeliverTokens(
        (
            (RequestId("q"), Token("a", "content", (0,))),
            (RequestId("r"), Token("b", "content", (0,))),
        ),
        2,
        (0.5, 0.5),
        HOST,
    )
    assert step[3] == DeliverTokens(
        ((RequestId("r"), Token("c", "content", (0,))),), 1, (0.0,), HOST
    )
    assert seen(scene.fleet).totals().items_ignored == 1
