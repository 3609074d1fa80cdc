"""One request's life: deadlines, timings, and the one end."""

from dataclasses import replace
from typing import Any

import pytest

from arriero.balancer.fleet.decisions import (
    Decision,
    Deliver,
    Finish,
    FirstToken,
    LinkId,
    Moved,
)
from arriero.balancer.fleet.lifecycle import NotServed
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.recorder import Ending, Origin
from arriero.balancer.fleet.requests.delivered import MAX_NOTICES, Delivered
from arriero.balancer.fleet.requests.eligibility import ByText, Engine
from arriero.balancer.fleet.requests.request import (
    MAX_AGENTS_LOST,
    MAX_LOST_ALONE,
    Moves,
    Request,
)
from arriero.balancer.fleet.view import RequestView
from arriero.shared.continuation import Continuation
from arriero.shared.errors import (
    AgentLost,
    Cancelled,
    EngineFailed,
    FirstTokenTimeout,
    QueueTimeout,
    RequestTimeout,
    ShuttingDown,
    TokenTimeout,
)
from arriero.shared.inference import (
    AgentId,
    Done,
    Failed,
    GbnfGrammar,
    Notice,
    RequestId,
    Timings,
    Token,
    ToolCallStarted,
    Usage,
)
from arriero.shared.messages import CallStarted, Noticed, PromptRead
from tests.balancer.fleet.builders import USAGE, ended, request

LIMITS = Limits(
    buffered_request_timeout=10.0,
    first_token_timeout=20.0,
    token_timeout=5.0,
    request_timeout=100.0,
)
LINK = LinkId(1)


def lifecycle_at(now: float, limits: Limits = LIMITS) -> Request:
    return Request(RequestId("r"), request("llama"), limits, now)


def streaming_at(now: float) -> Request:
    lifecycle = lifecycle_at(now)
    lifecycle.assigned(LINK, "host", now)
    lifecycle.gained(token(1), now)
    return lifecycle


def token(num_tokens: int) -> Token:
    return Token("word", "content", tuple(range(num_tokens)))


def ending(finish: Decision) -> Ending:
    assert isinstance(finish, Finish)
    return finish.ending


def test_a_whole_life_is_timed_from_acceptance() -> None:
    lifecycle = lifecycle_at(100.0)
    assert lifecycle.state == "queued"
    lifecycle.assigned(LINK, "host", 101.0, model="llama-2")
    assert lifecycle.state == "assigned"
    assert lifecycle.gained(token(2), 103.0) == FirstToken(3.0, Origin("host", "llama-2"))
    assert lifecycle.state == "streaming"
    assert lifecycle.gained(token(1), 103.5) == 0.5
    assert lifecycle.num_tokens == 3
    timings = Timings(queue_ms=1000.0, first_token_ms=3000.0, total_ms=4000.0)
    end = replace(ended("r"), stop_string="END")
    assert lifecycle.done(end, 104.0) == [
        Deliver(RequestId("r"), Done("stop", USAGE, timings, "host", "END")),
        Finish(
            Ending(
                code="stop",
                request_id=RequestId("r"),
                agent="host",
                model="llama-2",
                usage=USAGE,
                timings=timings,
            )
        ),
    ]


def test_a_failure_counts_what_was_delivered() -> None:
    lifecycle = streaming_at(0.0)
    error = EngineFailed("out of luck")
    deliver, finish = lifecycle.failed(error, 1.0)
    assert deliver == Deliver(RequestId("r"), Failed(error))
    assert ending(finish).code == "engine_failed"
    assert ending(finish).error == error
    assert ending(finish).usage == Usage(completion_tokens=1)


def test_a_client_that_left_is_an_end_without_a_delivery() -> None:
    finish = lifecycle_at(0.0).gone(2.0)
    assert ending(finish).code == "client_gone"
    assert ending(finish).agent is None
    assert ending(finish).timings == Timings(queue_ms=2000.0, first_token_ms=None, total_ms=2000.0)


def test_waiting_for_a_slot_has_a_deadline() -> None:
    lifecycle = lifecycle_at(1.0)
    assert lifecycle.deadline == 11.0
    assert lifecycle.overdue(10.9) is None
    assert lifecycle.overdue(11.0) == QueueTimeout("no slot was free for 10 s")
    assert lifecycle.overdue(11.0, NotServed("no agent is connected")) == QueueTimeout(
        "no agent served the model `llama` for 10 s: no agent is connected"
    )


def test_the_first_token_has_a_deadline_from_the_assignment() -> None:
    lifecycle = lifecycle_at(0.0)
    lifecycle.assigned(LINK, "host", 9.0)
    assert lifecycle.deadline == 29.0
    assert lifecycle.overdue(29.0) == FirstTokenTimeout("no progress within 20 s")


def test_the_deadlines_of_tokens_count_from_the_last_progress() -> None:
    lifecycle = lifecycle_at(0.0)
    lifecycle.assigned(LINK, "host", 9.0)
    lifecycle.reads(28.0)
    assert lifecycle.deadline == 48.0
    assert lifecycle.overdue(47.9) is None
    lifecycle.gained(token(0), 48.0)
    lifecycle.reads(52.0)  # it was preempted, and is computed again
    assert lifecycle.deadline == 57.0
    assert isinstance(lifecycle.overdue(57.0), TokenTimeout)


def test_each_token_moves_the_deadline_of_the_next() -> None:
    lifecycle = streaming_at(1.0)
    assert lifecycle.deadline == 6.0
    lifecycle.gained(token(1), 4.0)
    assert lifecycle.deadline == 9.0
    assert lifecycle.overdue(9.0) == TokenTimeout("no further token within 5 s")


def test_the_whole_request_has_a_deadline_that_nothing_moves() -> None:
    lifecycle = streaming_at(0.0)
    lifecycle.gained(token(1), 98.0)
    assert lifecycle.deadline == 100.0
    assert lifecycle.overdue(100.0) == RequestTimeout("not finished within 100 s")


@pytest.mark.parametrize("streams", [False, True])
def test_notices_beyond_a_number_are_counted_and_not_delivered(streams: bool) -> None:
    lifecycle = streaming_at(0.0) if streams else lifecycle_at(0.0)
    if not streams:
        lifecycle.assigned(LINK, "host", 0.0)
    delivered = [
        decision
        for number in range(MAX_NOTICES + 7)
        for decision in lifecycle.received(
            Noticed(id=RequestId("r"), code="odd", message=str(number)), 1.0
        )
    ]
    assert len(delivered) == MAX_NOTICES
    last, end, _ = lifecycle.done(ended("r"), 2.0)
    assert last == Deliver(
        RequestId("r"),
        Notice("notices_left_out", "the request has more than 64 notices; left out: 7"),
    )
    assert isinstance(end, Deliver)
    assert isinstance(end.event, Done)


def test_notices_that_were_left_out_are_told_before_an_error_too() -> None:
    lifecycle = streaming_at(0.0)
    for number in range(MAX_NOTICES + 1):
        noticed = Noticed(id=RequestId("r"), code="odd", message=str(number))
        lifecycle.received(noticed, 1.0)
    last, end, _ = lifecycle.failed(EngineFailed("no"), 2.0)
    assert isinstance(last, Deliver)
    assert isinstance(last.event, Notice)
    assert end == Deliver(RequestId("r"), Failed(EngineFailed("no")))


def test_time_with_an_agent_is_not_time_in_the_queue() -> None:
    lifecycle = lifecycle_at(0.0)
    lifecycle.assigned(LINK, "host", 7.0)
    lifecycle.came_back(25.0)
    assert lifecycle.state == "queued"
    assert lifecycle.link is None
    assert lifecycle.waited(26.0) == 8.0
    assert lifecycle.deadline == 28.0, "three seconds were left of ten"
    lifecycle.assigned(LinkId(2), "other", 27.0)
    assert lifecycle.deadline == 47.0, "a new start has its own time"
    assert ending(lifecycle.gone(30.0)).timings.queue_ms == 9000.0


def test_what_has_streamed_goes_on_with_the_next_agent() -> None:
    lifecycle = streaming_at(0.0)
    assert lifecycle.moved("lost", 2.0) == Moved(RequestId("r"), "lost", Origin("host", "llama"))
    assert (lifecycle.state, lifecycle.link, lifecycle.deadline) == ("queued", None, 12.0)
    assert lifecycle.continuation == Continuation.after([0], num_characters=4)
    lifecycle.assigned(LinkId(2), "other", 3.0)
    assert (lifecycle.state, lifecycle.deadline) == ("assigned", 23.0), "a first token of its own"
    assert lifecycle.gained(token(1), 5.0) == 5.0, "the client saw a pause, not a first token"
    assert (lifecycle.state, lifecycle.deadline) == ("streaming", 10.0)
    _, finish = lifecycle.done(ended("r"), 6.0)
    assert ending(finish).timings.moves == 1
    assert ending(finish).timings.first_token_ms == 0.0


def test_a_call_is_a_first_sign_of_the_next_agent_too() -> None:
    lifecycle = streaming_at(0.0)
    lifecycle.moved("silent", 2.0)
    lifecycle.assigned(LinkId(2), "other", 3.0)
    called = CallStarted(id=RequestId("r"), call_id="c", name="f")
    assert lifecycle.received(called, 9.0) == (Deliver(RequestId("r"), ToolCallStarted("c", "f")),)
    assert (lifecycle.state, lifecycle.deadline) == ("streaming", 14.0)


def test_usage_has_the_prompt_as_it_was_told_first() -> None:
    lifecycle = lifecycle_at(0.0)
    lifecycle.assigned(LINK, "host", 0.0)
    lifecycle.received(PromptRead(id=RequestId("r"), prompt_tokens=9, cached_tokens=5), 1.0)
    lifecycle.moved("lost", 2.0)
    lifecycle.assigned(LinkId(2), "other", 3.0)
    again = PromptRead(id=RequestId("r"), prompt_tokens=9, cached_tokens=0)
    assert lifecycle.received(again, 4.0) == ()
    _, finish = lifecycle.done(ended("r"), 6.0)
    assert ending(finish).usage == replace(USAGE, prompt_tokens=9, cached_tokens=5)


def test_an_answer_waits_for_its_engine_in_vain() -> None:
    lifecycle = streaming_at(0.0)
    lifecycle.moved("lost", 2.0)
    assert lifecycle.overdue(12.0) == AgentLost(
        "the agent host was lost during the answer, and no agent with the same model "
        "could continue the answer within 10 s"
    )


def test_only_answers_that_are_bound_to_an_engine_can_move() -> None:
    lifecycle = lifecycle_at(0.0)
    lifecycle.assigned(LINK, "host", 0.0, model="llama")
    assert lifecycle.can_move, "nothing was delivered"
    lifecycle.gained(token(1), 1.0)
    assert not lifecycle.can_move
    lifecycle.fingerprint_known("abc")
    lifecycle.fingerprint_known("abd")
    assert lifecycle.engine == Engine("llama", "abc")
    assert lifecycle.can_move
    lifecycle.gained(Token("x", "content", (2**32,)), 1.0)
    assert not lifecycle.can_move, "a token that no vocabulary has"


def test_nothing_is_gained_without_an_agent() -> None:
    with pytest.raises(ValueError, match="no agent"):
        lifecycle_at(0.0).gained(token(1), 1.0)


def test_it_ends_once() -> None:
    lifecycle = streaming_at(0.0)
    lifecycle.done(ended("r"), 1.0)
    with pytest.raises(ValueError, match="ended already"):
        lifecycle.failed(Cancelled("late"), 2.0)
    with pytest.raises(ValueError, match="no agent"):
        lifecycle.gained(token(1), 2.0)


def test_its_view_shows_where_it_is() -> None:
    lifecycle = lifecycle_at(10.0)
    lifecycle.assigned(LINK, "host", 12.0)
    lifecycle.gained(token(3), 13.0)
    assert lifecycle.view(AgentId("a1"), 15.0) == RequestView(
        id=RequestId("r"),
        state="streaming",
        model="llama",
        agent=AgentId("a1"),
        waited_seconds=2.0,
        age_seconds=5.0,
        num_tokens=3,
        priority=0,
        caller="anonymous",
    )


def test_what_was_used_counts_however_it_ends() -> None:
    lifecycle = streaming_at(0.0)
    lifecycle.received(PromptRead(id=RequestId("r"), prompt_tokens=7, cached_tokens=4), 1.0)
    lifecycle.gained(token(2), 1.0)
    used = ending(lifecycle.gone(2.0)).usage
    assert used == Usage(prompt_tokens=7, cached_tokens=4, completion_tokens=3)


def test_a_prompt_that_was_not_computed_was_not_used() -> None:
    assert ending(streaming_at(0.0).gone(2.0)).usage == Usage(completion_tokens=1)


BY_TEXT = Engine("llama", "text:f")
"""Agents that go on by text."""


def test_by_text_an_answer_goes_on_after_its_text() -> None:
    lifecycle = lifecycle_at(0.0)
    lifecycle.assigned(LINK, "host", 0.0, model="llama", fingerprint=BY_TEXT.fingerprint)
    assert (lifecycle.continuation, lifecycle.can_move) == (None, True)
    lifecycle.gained(token(2), 0.0)
    assert lifecycle.engine == BY_TEXT
    rest = Continuation(text="word", num_tokens=2, num_characters=4)
    assert lifecycle.continuation == rest


def moved_from(fingerprint: str | None, *, forwards: bool = False) -> Request:
    """One whose agent was lost after two tokens."""
    lifecycle = lifecycle_at(0.0)
    lifecycle.assigned(LINK, "host", 0.0, model="llama", fingerprint=fingerprint, forwards=forwards)
    lifecycle.gained(token(2), 0.0)
    lifecycle.moved("lost", 1.0)
    return lifecycle


HEARD = Continuation(text="word", num_tokens=2, num_characters=4)


def test_engines_of_one_kind_go_on_by_ids_and_servers_by_text() -> None:
    lifecycle = moved_from("f")
    assert lifecycle.engine == Engine("llama", "f")
    assert lifecycle.by_text == ByText("llama", ("prompt",), "f")
    assert lifecycle.continuation_for("f") == Continuation.after((0, 1), num_characters=4)
    assert lifecycle.continuation_for("text:g") == HEARD


@pytest.mark.parametrize("fingerprint", ["text:f", None])
def test_any_agent_of_the_model_goes_on_with_a_servers_answer(fingerprint: str | None) -> None:
    lifecycle = moved_from(fingerprint, forwards=True)
    assert lifecycle.by_text == ByText("llama", ("prompt",), None)
    assert lifecycle.continuation_for("f") == HEARD


def test_an_answer_of_several_agents_has_no_ids_of_one() -> None:
    lifecycle = moved_from("f")
    lifecycle.assigned(LinkId(2), "other", 1.0, model="llama", fingerprint="text:g", forwards=True)
    lifecycle.gained(token(1), 1.0)
    lifecycle.moved("lost", 2.0)
    assert lifecycle.by_text == ByText("llama", ("prompt",), None)
    both = Continuation(text="wordword", num_tokens=3, num_characters=8)
    assert lifecycle.continuation_for("f") == lifecycle.continuation_for("text:g") == both
    later = lifecycle_at(0.0)
    later.resume(lifecycle.delivered, lifecycle.engine, 1.0)
    assert later.continuation_for("f") == both, "nor after a restart"


@pytest.mark.parametrize(
    "fields", [{"logprobs": True}, {"prompt": (1, 2)}, {"suffix": "end"}, {"save_cache": True}]
)
def test_what_only_an_engine_of_the_same_kind_can_go_on_with(fields: dict[str, Any]) -> None:
    asked = replace(request("llama"), **fields)
    lifecycle = Request(RequestId("r"), asked, LIMITS, 0.0)
    lifecycle.assigned(LINK, "host", 0.0, model="llama", fingerprint="f")
    lifecycle.gained(token(2), 0.0)
    assert (lifecycle.by_text, lifecycle.engine) == (None, Engine("llama", "f"))


def test_reasoning_goes_on_by_ids_alone() -> None:
    lifecycle = lifecycle_at(0.0)
    lifecycle.assigned(LINK, "host", 0.0, model="llama", fingerprint="f")
    lifecycle.gained(Token("hm", "reasoning", (1,)), 0.0)
    assert (lifecycle.by_text, lifecycle.engine) == (None, Engine("llama", "f"))


def test_by_text_a_constrained_answer_does_not_go_on() -> None:
    asked = replace(request("llama"), grammar=GbnfGrammar(type="gbnf", grammar='root ::= "a"'))
    lifecycle = Request(RequestId("r"), asked, LIMITS, 0.0)
    lifecycle.assigned(LINK, "host", 0.0, model="llama", fingerprint=BY_TEXT.fingerprint)
    assert lifecycle.can_move, "nothing was delivered"
    lifecycle.gained(token(1), 0.0)
    assert not lifecycle.can_move


@pytest.mark.parametrize(
    ("engine", "rest"),
    [
        (BY_TEXT, Continuation(text="word", num_tokens=2, num_characters=4)),
        (Engine("llama", "f"), Continuation.after((0, 1), num_characters=4)),
    ],
)
def test_what_an_earlier_run_delivered_goes_on_as_its_agents_do(
    engine: Engine, rest: Continuation
) -> None:
    lifecycle = lifecycle_at(0.0)
    lifecycle.resume(Delivered.after([token(2)]), engine, 1.0)
    assert (lifecycle.engine, lifecycle.continuation) == (engine, rest)


def test_agents_lost_in_a_row_with_nothing_but_this_request_make_it_a_suspect() -> None:
    moves = Moves()
    moves.agent_lost(is_alone=True)
    moves.agent_lost(is_alone=False)
    assert moves.suspicion is None, "others were lost with it"
    moves = Moves()
    for _ in range(MAX_LOST_ALONE):
        assert moves.suspicion is None
        moves.agent_lost(is_alone=True)
    assert moves.suspicion is not None


def test_agents_lost_with_others_make_it_a_suspect_later() -> None:
    moves = Moves()
    for _ in range(MAX_AGENTS_LOST):
        assert moves.suspicion is None
        moves.agent_lost(is_alone=False)
    assert isinstance(moves.suspicion, AgentLost)


def test_the_error_of_an_answer_that_stays_says_why_it_left() -> None:
    moves = Moves()
    moves.moved("drained")
    assert isinstance(moves.stuck("a1", 30.0), ShuttingDown)
    moves.moved("silent")
    error = moves.stuck("a1", 30.0)
    assert isinstance(error, AgentLost)
    assert "a1" in error.message and "30 s" in error.message
    moves.moved("restarted")
    assert "the balancer was restarted" in moves.stuck("", 30.0).message
    assert moves.num == 3
