import pytest

from arriero.balancer.api.common.accumulator import Accumulator
from arriero.shared.errors import AgentLost
from arriero.shared.inference import (
    Begun,
    Event,
    Failed,
    LogProb,
    Notice,
    Token,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
)
from tests.balancer.api.fake_runtime import done


def accumulator(*events: Event) -> Accumulator:
    answer = Accumulator()
    for event in events:
        answer.add(event)
    return answer


def test_texts_by_kind() -> None:
    answer = accumulator(
        Token("a", "reasoning"), Token("b"), Token("c", "reasoning"), Token("d"), done()
    )
    assert (answer.text(), answer.text("reasoning"), answer.text("tool_call")) == ("bd", "ac", "")
    assert answer.done() == answer.end == done()


def test_log_probabilities_by_kind() -> None:
    one, two = (TokenLogProbs(LogProb(number, b"x", -1.0)) for number in (1, 2))
    answer = accumulator(
        Token("a", "reasoning", (), (one,)), Token("b", log_probs=(two,)), Token("c"), done()
    )
    assert list(answer.log_probs()) == [two]
    assert list(answer.log_probs("reasoning")) == [one]
    assert list(answer.log_probs("tool_call")) == []


def test_notices_are_kept() -> None:
    assert accumulator(Notice("a", "b")).notices == [Notice("a", "b")]


def test_calls_are_kept_whole() -> None:
    call = ToolCall("c", "f", "{}")
    events = (Begun(7, 0), ToolCallStarted("c", "f"), Token("{}", "tool_call"), call)
    assert accumulator(*events).calls == [call]


def test_the_end_is_the_only_one() -> None:
    with pytest.raises(RuntimeError):
        accumulator(Token("a")).end  # noqa: B018
    with pytest.raises(RuntimeError):
        accumulator(done(), Token("a"))


def test_done_raises_the_error() -> None:
    answer = accumulator(Token("a"), Failed(AgentLost("gone")))
    assert answer.end == Failed(AgentLost("gone"))
    with pytest.raises(AgentLost):
        answer.done()
