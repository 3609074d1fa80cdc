"""The composed core: one example for each race and rule."""

from dataclasses import replace

import pytest

from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.decisions import (
    Decision,
    DeliverTokens,
    FirstToken,
    LinkId,
    Moved,
    Refuse,
    Send,
)
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.recorder import Origin
from arriero.balancer.fleet.requests.routing import Engine
from arriero.shared.continuation import Continuation
from arriero.shared.errors import PromptTooLong, QueueFull
from arriero.shared.inference import (
    AgentId,
    Begun,
    Done,
    Event,
    GenerateRequest,
    RequestId,
    Token,
    Waiting,
)
from arriero.shared.inference.prefix_peers import Peer
from arriero.shared.messages import PROTOCOL_VERSION, Lend, Start, Welcome
from tests.balancer.fleet.builders import (
    busy,
    codes,
    delivered,
    ended,
    hello,
    model_info,
    piece,
    request,
    sent,
    status,
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
    totals = scene.fleet.totals()
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
    assert scene.fleet.totals().queue_depth == 2
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
    assert scene.fleet.totals().queue_depth == 0


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
    assert told_waiting(scene.after(0.5)) == {"0": Waiting(1, "model")}


TOLD = (Begun(3, 1), Token("On", tokens=(4,)), Token("ce", tokens=(5, 6)))
ENGINE = Engine("llama", "f")


def resumed(scene: Scene, *told: Event, engine: Engine | None = None) -> list[Decision]:
    decisions = scene.fleet.request_resumed(
        RequestId("r"),
        request("llama"),
        scene.now,
        caller=ANONYMOUS,
        told=told,
        engine=engine,
        age=40.0,
    )
    scene.fleet.check_integrity()
    return decisions


def test_what_another_run_accepted_goes_on_where_its_client_is() -> None:
    scene = Scene()
    [moved] = resumed(scene, *TOLD, engine=ENGINE)
    assert moved == Moved(RequestId("r"), "restarted", Origin("", "llama"))
    assert scene.fleet.engine_of(RequestId("r")) == ENGINE
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
    assert "restarted in the middle" in failure(resumed(Scene(), *TOLD), "r").message
    scene = Scene()
    resumed(scene, *TOLD, engine=ENGINE)
    error = failure(scene.after(30.0), "r")
    assert "the balancer was restarted" in error.message and "30 s" in error.message


def test_no_queue_is_full_for_what_was_accepted_before() -> None:
    scene = Scene(replace(NO_HEARTBEATS, max_buffered_requests=0))
    assert resumed(scene) == []
    assert Send(A, start("r", "llama")) in scene.join(A, hello("a1"))


def test_a_request_costs_about_the_same_in_a_small_fleet_and_in_a_large_one() -> None:
    small, large = work_of_one(64), work_of_one(2048)
    assert small > 1000  # they are counted
    assert large < 1.2 * small


def lending(link: LinkId, address: str, scene: Scene) -> None:
    """An agent with a slot that lends and fetches."""
    scene.join(link, hello(address, slots=1))
    peer = Peer(address=address, tls=False, cells="c", cell_bytes=1000)
    scene.fleet.agent_said(link, status(1, peer=peer), scene.now)


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


def test_who_is_no_peer_is_told_of_none() -> None:
    scene = Scene(ticket_secret=b"secret")
    lending(A, "a:1", scene)
    long_request("r", scene)
    scene.join(B, hello("b", slots=1))
    [started] = long_request("s", scene)
    assert isinstance(started, Send) and started.link == B
    assert isinstance(started.message, Start) and started.message.fetch is None
