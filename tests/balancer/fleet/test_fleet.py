"""The composed core: one example for each race and rule."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from arriero.balancer.fleet.decisions import (
    Decision,
    Deliver,
    DeliverTokens,
    Disconnect,
    FirstToken,
    LinkId,
    Refuse,
    Send,
)
from arriero.balancer.fleet.fleet import Fleet
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.registry import BUSY_PAUSE
from arriero.balancer.fleet.requests.requests import MAX_AGENTS_LOST
from arriero.shared.errors import Cancelled, EngineFailed, PromptTooLong, RequestError, ShuttingDown
from arriero.shared.heartbeat import SECOND_LOOK
from arriero.shared.inference import (
    Begun,
    Done,
    Failed,
    GenerateRequest,
    LogProb,
    Notice,
    RequestId,
    Token,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
)
from arriero.shared.messages import (
    PROTOCOL_VERSION,
    Called,
    CallStarted,
    Cancel,
    Goodbye,
    Heartbeat,
    Hello,
    Item,
    Noticed,
    PromptRead,
    Reject,
    Start,
    Statistics,
    Welcome,
)
from tests.balancer.fleet.builders import (
    busy,
    codes,
    delivered,
    ended,
    hello,
    model_info,
    output,
    piece,
    refused,
    request,
    sent,
    status,
)

LIMITS = Limits(
    max_buffered_requests=8,
    buffered_request_timeout=30.0,
    first_token_timeout=20.0,
    token_timeout=10.0,
    request_timeout=300.0,
    heartbeat_interval=1.0,
    heartbeat_timeout=5.0,
)
NO_HEARTBEATS = Limits(
    buffered_request_timeout=30.0,
    first_token_timeout=20.0,
    token_timeout=10.0,
    request_timeout=300.0,
    heartbeat_interval=1e6,
    heartbeat_timeout=1e6,
)
A, B = LinkId(1), LinkId(2)


class Scene:
    """A fleet and a clock; each event is checked for integrity."""

    def __init__(self, limits: Limits = NO_HEARTBEATS) -> None:
        self.fleet = Fleet(limits, version="9.9")
        self.now = 100.0

    def _checked(self, decisions: list[Decision]) -> list[Decision]:
        self.fleet.check_integrity()
        return decisions

    def open(self, *ids: str, model: str | None = None) -> list[Decision]:
        decisions: list[Decision] = []
        for id in ids:
            decisions += self.fleet.request_arrived(RequestId(id), request(model), self.now)
        return self._checked(decisions)

    def close(self, id: str) -> list[Decision]:
        return self._checked(self.fleet.close(RequestId(id), self.now))

    def cancel(self, *ids: str) -> list[Decision]:
        return self._checked(self.fleet.cancel([RequestId(id) for id in ids], self.now))

    def join(self, link: LinkId, hello: Hello) -> list[Decision]:
        return self._checked(self.fleet.agent_joined(link, hello, self.now))

    def say(self, link: LinkId, *items: Item) -> list[Decision]:
        return self._checked(self.fleet.agent_said(link, output(*items), self.now))

    def leave(self, link: LinkId) -> list[Decision]:
        return self._checked(self.fleet.agent_left(link, self.now))

    def after(self, seconds: float) -> list[Decision]:
        self.now += seconds
        return self._checked(self.fleet.tick(self.now))

    def drain(self, within: float) -> list[Decision]:
        return self._checked(self.fleet.drain(self.now, self.now + within))


def with_agent(slots: int = 1, limits: Limits = NO_HEARTBEATS) -> Scene:
    scene = Scene(limits)
    scene.join(A, hello("a1", slots=slots))
    return scene


def start(id: str, model: str | None = None) -> Start:
    return Start(id=RequestId(id), request=request(model))


def cancel(id: str) -> Cancel:
    return Cancel(id=RequestId(id))


def failure(decisions: list[Decision], id: str) -> RequestError:
    [event] = [event for request, event in delivered(decisions) if request == id]
    assert isinstance(event, Failed)
    return event.error


# ---- a request's way


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
    assert len(delivered(scene.say(B, piece("r"), noticed))) == 2


def test_an_answer_that_has_begun_with_a_call_does_not_begin_anew() -> None:
    scene = with_agent()
    scene.open("r")
    scene.say(A, CallStarted(id=RequestId("r"), call_id="c", name="f"))
    assert scene.fleet.view(scene.now).requests[0].state == "streaming"
    scene.join(B, hello("a2"))
    assert codes(scene.leave(A)) == {"r": "agent_lost"}


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
        FirstToken(0.0),
        Deliver(id, ToolCall("c", "f", "{}")),
    ]


def test_a_request_runs_and_is_measured() -> None:
    scene = with_agent()
    assert scene.open("r") == [Send(A, start("r"))]
    scene.now += 2.0
    assert scene.say(A, piece("r", "Once")) == [
        DeliverTokens(((RequestId("r"), Token("Once", "content", (0,))),)),
        FirstToken(2.0),
    ]
    scene.now += 0.5
    assert scene.say(A, piece("r", " upon")) == [
        DeliverTokens(((RequestId("r"), Token(" upon", "content", (0,))),), (0.5,))
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


def test_an_agents_error_goes_to_the_client() -> None:
    scene = with_agent()
    scene.open("r")
    error = PromptTooLong("2049 tokens, at most 2048", field="prompt")
    assert failure(scene.say(A, refused("r", error)), "r") == error


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
    assert scene.fleet.totals().items_ignored == 4
    assert sent(scene.say(A, ended("2"))) == []


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


# ---- the agent refuses, changes, goes


def test_busy_goes_to_another_agent_or_back_to_the_head() -> None:
    scene = with_agent()
    scene.open("1", "2")
    assert sent(scene.say(A, busy("1"))) == []
    scene.join(B, hello("b", slots=1))
    assert scene.fleet.view(scene.now).requests[0].agent == "b"
    assert sent(scene.say(B, ended("1"))) == [start("2")]


def test_a_full_agent_is_tried_again_after_a_pause() -> None:
    scene = with_agent(slots=2)
    scene.open("1")
    scene.say(A, busy("1"))
    assert scene.fleet.next_deadline() == scene.now + BUSY_PAUSE
    assert scene.after(BUSY_PAUSE / 2) == []
    assert sent(scene.after(BUSY_PAUSE / 2)) == [start("1")]


def test_a_full_agent_is_tried_again_when_it_reports_a_change() -> None:
    scene = with_agent(slots=2)
    scene.open("1")
    scene.say(A, busy("1"))
    decisions = scene.fleet.agent_said(A, status(slots=3), scene.now)
    assert sent(decisions) == [start("1")]


@pytest.mark.parametrize("pieces", [0, 1])
def test_shutting_down_agents_hand_over_what_has_not_begun(pieces: int) -> None:
    scene = with_agent()
    scene.open("r")
    scene.say(A, *[piece("r")] * pieces)
    scene.join(B, hello("b"))
    decisions = scene.say(A, refused("r", ShuttingDown("going down")))
    if pieces:
        assert failure(decisions, "r").code == "shutting_down"
    else:
        assert decisions == [Send(B, start("r"))]


def test_busy_in_the_middle_of_an_answer_is_a_failure() -> None:
    scene = with_agent()
    scene.open("r")
    scene.say(A, piece("r"))
    assert failure(scene.say(A, busy("r")), "r").code == "engine_failed"


def test_slots_shrink_below_what_runs() -> None:
    scene = with_agent(slots=2)
    scene.open("1", "2", "3")
    assert scene.fleet.agent_said(A, status(slots=1), scene.now) == []
    assert sent(scene.say(A, ended("1"))) == []
    assert sent(scene.say(A, ended("2"))) == [start("3")]


def test_a_draining_agent_finishes_what_runs_and_gets_nothing() -> None:
    scene = with_agent(slots=2)
    scene.open("1")
    scene.fleet.agent_said(A, status(accepting=False), scene.now)
    assert sent(scene.open("2")) == []
    assert scene.fleet.view(scene.now).agents[0].state == "draining"
    assert codes(scene.say(A, ended("1"))) == {"1": "stop"}
    assert scene.fleet.totals().queue_depth == 1


def test_a_lost_agents_requests_go_on_in_their_order_unless_they_streamed() -> None:
    scene = with_agent(slots=3)
    scene.open("1", "2", "3", "4")
    scene.say(A, piece("2"))
    decisions = scene.leave(A)
    assert failure(decisions, "2").code == "agent_lost"
    assert sent(scene.join(B, hello("b", slots=3)))[1:] == [start("1"), start("3"), start("4")]


def test_a_request_that_takes_agents_down_does_not_take_them_all() -> None:
    scene = Scene()
    scene.open("r")
    for i in range(1, MAX_AGENTS_LOST):
        assert start("r") in sent(scene.join(LinkId(i), hello(f"a{i}")))
        assert codes(scene.leave(LinkId(i))) == {}
    scene.join(LinkId(9), hello("last"))
    assert failure(scene.leave(LinkId(9)), "r").code == "agent_lost"


def test_an_agent_that_dials_again_takes_its_own_place() -> None:
    scene = with_agent(slots=2)
    scene.open("1", "2")
    scene.say(A, piece("2"))
    decisions = scene.join(B, hello("a1", slots=2))
    assert Disconnect(A, "the agent has dialled again") in decisions
    assert codes(decisions) == {"2": "agent_lost"}
    assert decisions[-1] == Send(B, start("1"))
    assert scene.leave(A) == [], "the old socket's end is no second loss"
    assert scene.say(A, ended("1")) == [], "nor does its last word count"
    assert codes(scene.say(B, ended("1"))) == {"1": "stop"}
    assert scene.fleet.totals().num_agents == 1


def test_an_agent_cannot_touch_the_requests_of_another() -> None:
    scene = with_agent()
    scene.open("r")
    scene.join(B, hello("b"))
    theft: list[Item] = [piece("r"), ended("r"), busy("r"), refused("r", EngineFailed("x"))]
    assert scene.say(B, *theft) == []
    assert scene.fleet.totals().items_ignored == 4
    assert codes(scene.say(A, ended("r"))) == {"r": "stop"}


def test_a_second_hello_costs_the_agent_its_link() -> None:
    scene = with_agent()
    scene.open("r")
    scene.join(B, hello("b"))
    decisions = scene.fleet.agent_said(A, hello("a1"), scene.now)
    assert decisions == [Disconnect(A, "a second hello on one link"), Send(B, start("r"))]


def test_another_protocol_is_rejected_with_a_reason() -> None:
    scene = Scene()
    reject, disconnect = scene.join(A, hello(protocol=PROTOCOL_VERSION + 1))
    assert isinstance(reject, Send)
    assert isinstance(reject.message, Reject)
    assert not reject.message.retry
    assert f"protocol {PROTOCOL_VERSION}" in reject.message.reason
    assert disconnect == Disconnect(A, reject.message.reason)
    assert scene.fleet.totals().num_agents == 0


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


def test_log_probabilities_are_delivered_with_their_token() -> None:
    scene = with_agent()
    scene.open("r")
    log_probs = (TokenLogProbs(LogProb(1, b"x", -0.5)),)
    [(_, token)] = delivered(scene.say(A, replace(piece("r", "x"), log_probs=log_probs)))
    assert isinstance(token, Token)
    assert token.log_probs == log_probs


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
        (0.5, 0.5),
    )
    assert step[3] == DeliverTokens(((RequestId("r"), Token("c", "content", (0,))),), (0.0,))
    assert scene.fleet.totals().items_ignored == 1


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
    assert scene.fleet.next_deadline() == scene.now + 20.0
    scene.say(A, piece("r"))
    assert scene.fleet.next_deadline() == scene.now + 10.0, "the first token brings it nearer"


# ---- heartbeats


def test_a_silent_agent_is_lost() -> None:
    scene = with_agent(limits=LIMITS)
    scene.open("r")
    scene.join(B, hello("b"))
    for _ in range(4):
        scene.after(1.0)
        scene.fleet.agent_said(B, Heartbeat(), scene.now)
    assert Disconnect(A, "silent for 5 s") not in scene.after(1.0)
    decisions = scene.after(SECOND_LOOK)
    assert decisions[:2] == [Disconnect(A, "silent for 5 s"), Send(B, start("r"))]


def test_a_balancer_that_was_held_up_hears_its_agents_before_it_judges_them() -> None:
    scene = with_agent(limits=LIMITS)
    scene.open("r")
    scene.say(A, piece("r"))
    assert not any(isinstance(each, Disconnect) for each in scene.after(9.0))
    assert delivered(scene.say(A, piece("r"))), "it was waiting to be read"
    assert not any(isinstance(each, Disconnect) for each in scene.after(4.9))


def test_reading_what_waited_may_take_long_and_costs_no_agent() -> None:
    scene = with_agent(limits=LIMITS)
    scene.join(B, hello("b"))
    scene.after(60.0)
    scene.now += 2 * SECOND_LOOK
    assert scene.fleet.agent_said(A, Heartbeat(), scene.now) == [], "B's words come next"
    assert scene.fleet.agent_heard(B, scene.now) == []
    scene.after(0.0)
    assert scene.fleet.totals().num_agents == 2


def test_who_says_nothing_is_lost_though_others_speak() -> None:
    scene = with_agent(limits=LIMITS)
    scene.join(B, hello("b"))
    scene.after(60.0)
    scene.fleet.agent_said(A, Heartbeat(), scene.now)
    assert scene.after(SECOND_LOOK) == [Disconnect(B, "silent for 5 s")]


def test_a_part_of_a_message_is_a_sign_of_life() -> None:
    scene = with_agent(limits=LIMITS)
    for _ in range(10):
        scene.after(4.0)
        scene.fleet.agent_heard(A, scene.now)
    assert scene.fleet.totals().num_agents == 1
    assert scene.fleet.agent_heard(B, scene.now) == [], "a link that is not here"


def test_a_request_that_was_cancelled_before_all_of_it_was_sent_ends_as_cancelled() -> None:
    scene = with_agent()
    scene.open("r")
    assert scene.cancel("r") == [Send(A, cancel("r"))]
    decisions = scene.say(A, refused("r", Cancelled("cancelled before it started")))
    assert failure(decisions, "r") == Cancelled("cancelled before it started")
    assert scene.fleet.is_idle


@pytest.mark.parametrize("word", [Heartbeat(), output(), status(), Statistics()])
def test_any_word_is_a_sign_of_life(word: Heartbeat) -> None:
    scene = with_agent(limits=LIMITS)
    for _ in range(10):
        scene.after(4.0)
        scene.fleet.agent_said(A, word, scene.now)
    assert scene.fleet.totals().num_agents == 1


def test_what_an_engine_did_is_seen_and_changes_nothing_else() -> None:
    scene = with_agent()
    assert scene.fleet.view(scene.now).agents[0].statistics is None
    for said in (Statistics(num_running=1), Statistics(num_running=2)):
        revision = scene.fleet.revision
        assert scene.fleet.agent_said(A, said, scene.now) == []
        assert scene.fleet.view(scene.now).agents[0].statistics == said
        assert scene.fleet.revision > revision, "those who watch hear of it"


def test_agents_lost_together_pass_nothing_on_to_each_other() -> None:
    scene = Scene(LIMITS)
    for i in range(10):
        scene.join(LinkId(i), hello(f"a{i}"))
    scene.open("1", "2")
    scene.after(5.0)
    decisions = scene.after(SECOND_LOOK)
    assert len([each for each in decisions if isinstance(each, Disconnect)]) == 10
    assert sent(decisions) == []
    assert scene.fleet.totals().queue_depth == 2


def test_we_say_something_when_there_was_nothing_to_say() -> None:
    scene = with_agent(limits=LIMITS)
    assert scene.after(0.5) == []
    scene.open("r")
    assert scene.after(0.5) == [], "the start was a sign of life"
    assert scene.after(0.5) == [Send(A, Heartbeat())]


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
    scene.drain(8.0)
    assert scene.fleet.next_deadline() == scene.now + 8.0
    decisions = scene.after(8.0)
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
        Disconnect(A, "the balancer is going down"),
    ]
    rejection = sent(scene.join(B, hello("b")))
    assert rejection == [Reject(reason="the balancer is going down", retry=True)]
    assert scene.fleet.next_deadline() is None


# ---- what others see


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
    view = scene.fleet.view(scene.now)
    [agent] = view.agents
    assert (agent.slots.busy, agent.slots.total, agent.num_tokens) == (1, 1, 3)
    assert agent.connected_seconds == 2.0
    assert [each.state for each in view.requests] == ["streaming", "queued"]
    assert (view.queue_depth, view.slots_busy, view.slots_total) == (1, 1, 1)
    assert (view.tokens_total, view.is_ready, view.is_draining) == (3, True, False)
