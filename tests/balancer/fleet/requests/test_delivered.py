"""What the next agent is told, for any answer."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.fleet.bad_messages import BadMessage
from arriero.balancer.fleet.requests import delivered
from arriero.balancer.fleet.requests.delivered import (
    ITEMS_A_TOKEN,
    LONGEST_TOKEN,
    MAX_NOTICES,
    SPARE,
    SPARE_OF_SERVERS,
    Claim,
    Delivered,
    Notices,
    consistent,
)
from arriero.shared.continuation import Continuation
from arriero.shared.inference import (
    Begun,
    Event,
    LogProb,
    Notice,
    RequestId,
    Token,
    TokenKind,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
    Usage,
)
from arriero.shared.messages import Called, CallStarted, Item, Noticed, PromptRead
from arriero.shared.reports.model_info import Upstream
from tests.balancer.fleet.builders import ended, model_info, piece, request

R = RequestId("r")
LOG_PROBS = TokenLogProbs(LogProb(1, b"x", -0.5))
TOKENS = st.builds(
    Token,
    st.text(max_size=3),
    st.sampled_from(["content", "reasoning", "tool_call"]),
    st.lists(st.integers(0, 2**31 - 1), max_size=3).map(tuple),
    st.sampled_from([(), (LOG_PROBS,), (LOG_PROBS, LOG_PROBS)]),
)


@given(st.lists(TOKENS), st.text(max_size=3))
def test_a_continuation_is_the_sum_of_what_was_delivered(tokens: list[Token], echo: str) -> None:
    answer = Delivered()
    answer.add(Token(echo, "prompt", (), (LOG_PROBS,)))
    for token in tokens:
        answer.add(token)
    assert answer.by_ids == Continuation.after(
        [id for token in tokens for id in token.tokens],
        num_characters=sum(len(token.text) for token in tokens),
        num_prompt_characters=len(echo),
        num_prompt_log_probs=1,
        num_log_probs=sum(len(token.log_probs) for token in tokens),
    )


def test_calls_are_counted_when_they_begin_and_when_they_are_complete() -> None:
    answer = Delivered()
    started = CallStarted(id=R, call_id="c", name="f")
    called = Called(id=R, call_id="c", name="f", arguments="{}")
    assert answer.event_of(started) == ToolCallStarted("c", "f")
    assert answer.event_of(called) == ToolCall("c", "f", "{}")
    assert answer.event_of(started) == ToolCallStarted("c", "f"), "a second call"
    assert answer.by_ids == Continuation(num_calls_started=2, num_calls=1)


def test_a_prompt_that_is_counted_after_the_answer_is_not_told() -> None:
    answer = Delivered()
    answer.add(Token("a"))
    assert answer.event_of(PromptRead(id=R, prompt_tokens=7, cached_tokens=9)) is None
    assert answer.usage(1) == Usage(prompt_tokens=7, cached_tokens=7, completion_tokens=1)


def test_what_the_next_agent_tells_again_is_left_out() -> None:
    answer = Delivered()
    noticed = Noticed(id=R, code="odd", message="so")
    for expected in (Notice("odd", "so"), None):
        assert answer.event_of(noticed) == expected
    assert answer.event_of(PromptRead(id=R, prompt_tokens=7, cached_tokens=3)) == Begun(7, 3)
    assert answer.event_of(PromptRead(id=R, prompt_tokens=7, cached_tokens=0)) is None
    assert answer.usage(2) == Usage(prompt_tokens=7, cached_tokens=3, completion_tokens=2)


def test_an_answer_whose_tokens_cannot_be_kept_cannot_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strange = Delivered()
    strange.add(Token("a", "content", (1, 2**40, 2)))
    assert strange.by_ids is None
    monkeypatch.setattr(delivered, "MAX_TOKENS", 3)
    endless = Delivered()
    for number in range(3):
        endless.add(Token("a", "content", (number,)))
    assert endless.by_ids is not None
    for number in range(10):
        endless.add(Token("a", "content", (number,)))
        assert endless.num_tokens <= 3
    assert endless.by_ids is None


@given(st.lists(TOKENS), st.text(max_size=3))
def test_events_of_another_run_count_as_delivered_here(tokens: list[Token], echo: str) -> None:
    told: list[Event] = [Begun(7, 2), Token(echo, "prompt", (), (LOG_PROBS,)), *tokens]
    told += [ToolCallStarted("c", "f"), ToolCall("c", "f", "{}"), Notice("code", "text")]
    answer, expected = Delivered.after(told), Delivered()
    for token in told[1 : 2 + len(tokens)]:
        assert isinstance(token, Token)
        expected.add(token)
    expected.event_of(CallStarted(id=R, call_id="c", name="f"))
    expected.event_of(Called(id=R, call_id="c", name="f", arguments="{}"))
    assert answer.by_ids == expected.by_ids
    assert answer.event_of(Noticed(id=R, code="code", message="text")) is None
    assert answer.event_of(PromptRead(id=R, prompt_tokens=9, cached_tokens=0)) is None
    assert answer.usage(1).prompt_tokens == 7


@pytest.mark.parametrize(
    ("event", "has_begun"),
    [
        (Begun(1, 0), False),
        (Notice("c", "m"), False),
        (Token("", tokens=(1,)), True),
        (Token("echo", "prompt"), True),
        (ToolCallStarted("c", "f"), True),
    ],
)
def test_whether_the_answer_has_begun(event: Event, has_begun: bool) -> None:
    assert Delivered.after([event]).has_begun == has_begun


def said(text: str, kind: TokenKind = "content") -> Token:
    return Token(text, kind, (0,))


def test_text_is_kept_from_the_beginning() -> None:
    answer = Delivered()
    answer.keep_text()
    for each in ("He", "", "llo"):
        answer.add(said(each))
    assert answer.has_text
    assert answer.by_text == Continuation(text="Hello", num_tokens=3, num_characters=5)
    late = Delivered()
    late.add(said("He"))
    late.keep_text()
    assert not late.has_text


@pytest.mark.parametrize("kind", ["reasoning", "tool_call"])
def test_what_is_no_plain_text_is_not_gone_on_with_by_text(kind: TokenKind) -> None:
    answer = Delivered()
    answer.keep_text()
    for each in (said("He"), said("llo", kind), said("!")):
        answer.add(each)
    assert not answer.has_text


def test_a_call_is_not_gone_on_with_by_text() -> None:
    answer = Delivered()
    answer.keep_text()
    answer.event_of(CallStarted(id=R, call_id="c", name="f"))
    assert not answer.has_text


def test_an_answer_that_is_too_long_loses_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivered, "MAX_TEXT", 4)
    answer = Delivered()
    answer.keep_text()
    answer.add(said("long"))
    assert answer.has_text
    answer.add(said("er"))
    assert not answer.has_text


def test_an_earlier_run_delivered_text() -> None:
    events: list[Event] = [Begun(3, 0), said("He"), said("y")]
    answer = Delivered.after(events)
    assert answer.by_text == Continuation(text="Hey", num_tokens=2, num_characters=3)
    answer.drop_text()
    assert answer.by_ids == Continuation.after((0, 0), num_characters=3)


def test_a_notice_is_told_once() -> None:
    notices = Notices()
    assert notices.is_new(Notice("odd", "so"))
    assert not notices.is_new(Notice("odd", "so"))
    assert notices.is_new(Notice("odd", "or so"))
    assert notices.last is None


def test_those_beyond_a_number_are_counted() -> None:
    notices = Notices()
    told = [notices.is_new(Notice("odd", str(number))) for number in range(MAX_NOTICES + 2)]
    assert told == [True] * MAX_NOTICES + [False, False]
    assert not notices.is_new(Notice("odd", "0")), "told, so not left out"
    assert notices.last == Notice(
        "notices_left_out", "the request has more than 64 notices; left out: 2"
    )


ID = RequestId("r")
STARTED = CallStarted(id=ID, call_id="c", name="f")
CALLED = Called(id=ID, call_id="c", name="f", arguments="{}")


def claim(delivered: Delivered | None = None, **asked: Any) -> Claim:
    return Claim.of(replace(request(), **asked), model_info(), delivered or Delivered())


def is_bad(claim: Claim, *items: Item) -> bool:
    """Whether the last of these is; those before it are not."""
    for item in items[:-1]:
        claim.check(item)
    try:
        claim.check(items[-1])
    except BadMessage:
        return True
    return False


def test_no_more_tokens_than_were_asked_for() -> None:
    one = claim(max_tokens=5)
    one.check(piece("r", num_tokens=5 + SPARE))
    with pytest.raises(BadMessage, match=f"{6 + SPARE} tokens for a request that can have"):
        one.check(piece("r"))


def test_no_more_tokens_than_the_context_holds() -> None:
    assert claim().most_tokens == 2048 + SPARE
    assert claim(max_tokens=10**6).most_tokens == 2048 + SPARE
    assert claim(max_tokens=10**6, n_discard=8).most_tokens == 10**6 + SPARE


def test_servers_count_in_their_own_ways() -> None:
    served = replace(model_info(), upstream=Upstream(kind="vllm", address="h:1"), context_size=0)
    one = Claim.of(replace(request(), max_tokens=5), served, Delivered())
    assert one.most_tokens == 5 + SPARE_OF_SERVERS
    assert not is_bad(one, PromptRead(id=ID, prompt_tokens=10**6, cached_tokens=0))


def test_what_another_agent_gave_counts() -> None:
    delivered = Delivered()
    delivered.add(Token("ab", tokens=(1, 2)))
    one = claim(delivered, max_tokens=5)
    assert is_bad(one, piece("r", num_tokens=3 + SPARE), piece("r"))


def test_ends_tell_of_no_more_than_could_be() -> None:
    end = ended("r")
    assert not is_bad(claim(), end)
    for usage in (Usage(completion_tokens=2**31 - 1), Usage(prompt_tokens=2**31 - 1)):
        assert is_bad(claim(), replace(end, usage=usage))
    assert is_bad(claim(), PromptRead(id=ID, prompt_tokens=2**31 - 1, cached_tokens=0))


def test_a_prompt_comes_only_where_it_was_asked_for_and_first() -> None:
    prompt = piece("r", "Once", "prompt", num_tokens=0)
    echo = {"logprobs": True, "prompt_logprobs": True}
    assert is_bad(claim(), prompt)
    assert not is_bad(claim(**echo), prompt, prompt)
    assert is_bad(claim(**echo), piece("r"), prompt)
    assert is_bad(claim(**echo), STARTED, prompt)
    delivered = Delivered()
    delivered.add(Token("a"))
    assert is_bad(claim(delivered, **echo), prompt)


def test_arguments_come_only_within_a_call() -> None:
    arguments = piece("r", "{", "tool_call")
    assert is_bad(claim(), arguments)
    assert not is_bad(claim(), STARTED, arguments, piece("r", "", "content"), arguments)
    assert is_bad(claim(), STARTED, CALLED, arguments)
    assert is_bad(claim(), STARTED, piece("r", "said"), arguments)


def test_another_agents_call_is_gone_on_with() -> None:
    delivered = Delivered()
    delivered.event_of(STARTED)
    assert not is_bad(claim(delivered), piece("r", "{", "tool_call"), CALLED)


def test_no_more_items_and_text_than_tokens_can_give() -> None:
    one = claim(max_tokens=1)
    silent = piece("r", "", num_tokens=0)
    assert is_bad(one, *[silent] * (ITEMS_A_TOKEN * (1 + SPARE)), silent)
    echo = {"logprobs": True, "prompt_logprobs": True}
    part = piece("r", "", "prompt", num_tokens=0)
    assert not is_bad(claim(max_tokens=1, **echo), *[part] * 2048)
    one = claim(max_tokens=1)
    assert is_bad(one, Noticed(id=ID, code="c", message="m"), STARTED, piece("r", "a" * 10**5))
    assert is_bad(one, replace(CALLED, arguments="a" * ((1 + SPARE) * LONGEST_TOKEN)))


def test_counts_agree_with_each_other() -> None:
    whole = Usage(prompt_tokens=3, cached_tokens=3, completion_tokens=2, reasoning_tokens=2)
    assert consistent(whole) is whole
    assert consistent(replace(whole, cached_tokens=4, reasoning_tokens=9)) == whole
