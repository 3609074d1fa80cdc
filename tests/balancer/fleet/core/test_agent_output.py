"""What agents generate: to whom it goes, and what becomes of what is too late."""

from dataclasses import replace

import pytest

from arriero.balancer.fleet.decisions import (
    Decision,
    Deliver,
    DeliverTokens,
    Finish,
    FirstToken,
    LinkId,
    Moved,
    Send,
)
from arriero.balancer.fleet.recorder import Origin
from arriero.shared.continuation import Continuation
from arriero.shared.errors import AgentLost, EngineFailed, PromptTooLong, ShuttingDown
from arriero.shared.inference import (
    AgentId,
    Begun,
    ChatMessage,
    GenerateRequest,
    LogProb,
    Notice,
    RequestId,
    Token,
    TokenKind,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
)
from arriero.shared.inference.prefix_chain import chain_of
from arriero.shared.messages import Called, CallStarted, Evicted, Item, Noticed, PromptRead, Start
from tests.balancer.fleet.builders import (
    busy,
    codes,
    delivered,
    ended,
    forwarding,
    hello,
    piece,
    refused,
    request,
    sent,
    status,
)
from tests.balancer.fleet.core.scene import A, B, Scene, failure, start, with_agent

HOST = Origin("host-a1", "llama")


def test_what_an_agent_evicted_is_not_believed_to_be_there() -> None:
    scene = with_agent()
    wanted = GenerateRequest(prompt="The mules rest before each bridge. " * 20)
    scene.fleet.request_arrived(RequestId("r"), wanted, scene.now)
    keys = chain_of(wanted).keys
    scene.fleet.agent_said(A, Evicted(keys=keys[-2:]), scene.now)
    view = scene.fleet.view(scene.now).routing
    assert (view.num_beliefs, view.num_evicted) == (len(keys) - 2, 2)
    scene.fleet.agent_said(A, Evicted(everything=True), scene.now)
    view = scene.fleet.view(scene.now).routing
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
    assert scene.fleet.view(scene.now).requests[0].state == "streaming"
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
    assert scene.fleet.view(scene.now).requests[0].moves == 1
    assert [event for _, event in delivered(scene.say(B, piece("r", "}", "tool_call")))] == [
        Token("}", "tool_call", (0,))
    ]


def test_an_answer_waits_for_an_agent_of_the_same_fingerprint() -> None:
    scene = with_agent(fingerprint="f")
    scene.open("r")
    scene.say(A, piece("r"))
    scene.join(B, hello("b", fingerprint="g"))
    assert sent(scene.leave(A)) == []
    assert scene.fleet.view(scene.now).requests[0].state == "queued"
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
    assert scene.fleet.view(scene.now).requests[0].state == "queued"
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
    assert scene.fleet.view(scene.now).requests[0].state == "queued"
    [start] = [m for m in sent(scene.join(LinkId(3), forwarding("c"))) if isinstance(m, Start)]
    assert start.continuation == Continuation(text="He", num_tokens=1, num_characters=2)


def test_what_a_server_lacks_keeps_an_engines_answer_away_from_it() -> None:
    scene = with_agent(fingerprint="f")
    wanted = replace(request("llama"), top_k=3)
    scene.fleet.request_arrived(RequestId("r"), wanted, scene.now)
    scene.say(A, piece("r", "He"))
    scene.leave(A)
    scene.join(B, forwarding("b"))
    assert scene.fleet.view(scene.now).requests[0].state == "queued"
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
    assert scene.fleet.view(scene.now).requests[0].agent == "b"


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
    assert scene.fleet.totals().items_ignored == 4
    assert sent(scene.say(A, ended("2"))) == []


def test_busy_goes_to_another_agent_or_back_to_the_head() -> None:
    scene = with_agent()
    scene.open("1", "2")
    assert sent(scene.say(A, busy("1"))) == []
    scene.join(B, hello("b", slots=1))
    assert scene.fleet.view(scene.now).requests[0].agent == "b"
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
    decisions = scene.say(A, refused("r", ShuttingDown("going down")))
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
    assert scene.fleet.totals().items_ignored == 4
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
    assert scene.fleet.totals().items_ignored == 1
