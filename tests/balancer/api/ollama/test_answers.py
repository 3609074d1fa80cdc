"""Events as Ollama's lines, and as whole answers; both are what the official client reads."""

import json
from typing import Any

import pytest
from ollama import ChatResponse, GenerateResponse, ResponseError
from pydantic_core import to_json

from arriero.balancer.api.common.accumulator import Accumulator
from arriero.balancer.api.ollama.answers import (
    CHAT,
    GENERATE,
    LineHead,
    OllamaAnswer,
    OllamaChat,
    OllamaError,
    OllamaText,
    loaded_chat,
    loaded_text,
    ollama_error,
    time_text,
    whole_chat,
    whole_text,
)
from arriero.shared.errors import EngineFailed, ModelNotFound, QueueFull, RequestError
from arriero.shared.inference import (
    Begun,
    Done,
    Event,
    Failed,
    FinishReason,
    LogProb,
    Notice,
    Timings,
    Token,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
    Usage,
    Waiting,
)
from tests.balancer.api.declared import check

HEAD = LineHead("m", 1_700_000_000.5)
CREATED = "2023-11-14T22:13:20.500000Z"
TIMINGS = Timings(queue_ms=1.0, first_token_ms=3.0, total_ms=10.5)
DONE = Done("stop", Usage(prompt_tokens=7, completion_tokens=2), TIMINGS, "agent-1")
FIGURES = {
    "done_reason": "stop",
    "total_duration": 10_500_000,
    "load_duration": 1_000_000,
    "prompt_eval_count": 7,
    "prompt_eval_duration": 2_000_000,
    "eval_count": 2,
    "eval_duration": 7_500_000,
}
CALLS: list[Event] = [
    Token("hm", "reasoning"),
    Token("So: "),
    ToolCallStarted("c1", "sum"),
    Token('{"a": 1}', "tool_call"),
    ToolCall("c1", "sum", '{"a": 1}'),
    ToolCallStarted("c2", "now"),
    ToolCall("c2", "now", "{}"),
    DONE,
]
LOG_PROBS = (TokenLogProbs(LogProb(5, b"a", -0.5), (LogProb(6, b"b", -1.0),)),)


def lines(events: list[Event], shape: Any = CHAT) -> list[dict[str, Any]]:
    writer = OllamaAnswer(shape, HEAD, whole_chat)
    written = b"".join(map(writer.render, events))
    return [json.loads(line) for line in written.splitlines()]


def gathered(events: list[Event]) -> Accumulator:
    answer = Accumulator()
    for event in events:
        answer.add(event)
    return answer


def head(**members: Any) -> dict[str, Any]:
    return {"model": "m", "created_at": CREATED, "done": False, **members}


def said(**members: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", **members}


def test_a_stream_of_a_chat() -> None:
    events: list[Event] = [Begun(7, 0), Token("Hé"), Token(""), Token('"x"\n'), DONE]
    assert lines(events) == [
        head(message=said(content="Hé")),
        head(message=said(content='"x"\n')),
        head(message=said()) | {"done": True} | FIGURES,
    ]


def test_thinking_and_calls_come_in_lines_of_their_own() -> None:
    first = {"id": "c1", "function": {"index": 0, "name": "sum", "arguments": {"a": 1}}}
    second = {"id": "c2", "function": {"index": 1, "name": "now", "arguments": {}}}
    told = lines(CALLS)
    assert told[:-1] == [
        head(message=said(thinking="hm")),
        head(message=said(content="So: ")),
        head(message=said(tool_calls=[first])),
        head(message=said(tool_calls=[second])),
    ]
    message = whole_chat(HEAD, gathered(CALLS))["message"]
    assert message == said(content="So: ", thinking="hm", tool_calls=[first, second])
    for line in told:
        ChatResponse.model_validate(line, strict=True)


def test_a_stream_of_a_text() -> None:
    told = lines([Token("hm", "reasoning"), Token("a"), DONE], GENERATE)
    assert told == [
        head(response="", thinking="hm"),
        head(response="a"),
        head(response="") | {"done": True} | FIGURES,
    ]
    for line in told:
        GenerateResponse.model_validate(line, strict=True)


def test_answers_in_one_piece() -> None:
    answer = gathered([Token("hm", "reasoning"), Token("a"), Token("b"), DONE])
    ended = {"model": "m", "created_at": CREATED, "done": True} | FIGURES
    chat, text = whole_chat(HEAD, answer), whole_text(HEAD, answer)
    assert chat == {**ended, "message": said(content="ab", thinking="hm")}
    assert text == {**ended, "response": "ab", "thinking": "hm"}
    ChatResponse.model_validate(chat, strict=True)
    GenerateResponse.model_validate(text, strict=True)


def test_log_probs_come_with_their_text() -> None:
    events: list[Event] = [Token("a", log_probs=LOG_PROBS), DONE]
    entry = {"token": "b", "logprob": -1.0, "bytes": [98]}
    told = [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [entry]}]
    assert lines(events)[0] == head(message=said(content="a"), logprobs=told)
    assert whole_chat(HEAD, gathered(events))["logprobs"] == told
    assert whole_text(HEAD, gathered(events))["logprobs"] == told


@pytest.mark.parametrize(
    ("reason", "told"),
    [("stop", "stop"), ("length", "length"), ("tool_calls", "stop"), ("cancelled", "stop")],
)
def test_why_an_answer_ended(reason: FinishReason, told: str) -> None:
    assert lines([Done(reason, Usage(), TIMINGS, "a")])[-1]["done_reason"] == told


def test_an_answer_without_tokens_took_no_time_to_generate() -> None:
    timings = Timings(queue_ms=1.0, first_token_ms=None, total_ms=4.0)
    (told,) = lines([Done("stop", Usage(), timings, "a")])
    assert (told["prompt_eval_duration"], told["eval_duration"]) == (3_000_000, 0)


def test_arguments_that_are_no_object_are_empty() -> None:
    for wrong in ("[1]", "nonsense", '"a"'):
        (line,) = lines([ToolCall("c", "f", wrong)])
        assert line["message"]["tool_calls"][0]["function"]["arguments"] == {}


def test_nothing_is_written_before_the_first_line() -> None:
    """So an error that comes before it can be a status."""
    writer = OllamaAnswer(CHAT, HEAD, whole_chat)
    for event in (Waiting(1, "slot"), Notice("x", "y"), Begun(1, 0)):
        assert writer.render(event) == b""


def test_an_error_after_it_is_the_last_line() -> None:
    told = lines([Token("a"), Failed(EngineFailed("it broke"))])
    assert told[-1] == {"error": "it broke"}


def test_a_failed_answer_in_one_piece_is_raised() -> None:
    for whole in (whole_chat, whole_text):
        with pytest.raises(EngineFailed):
            whole(HEAD, gathered([Token("a"), Failed(EngineFailed("it broke"))]))


def test_a_model_that_is_there() -> None:
    ended = {"model": "m", "created_at": CREATED, "done": True, "done_reason": "load"}
    assert loaded_chat(HEAD) == {**ended, "message": said()}
    assert loaded_text(HEAD) == {**ended, "response": ""}


def test_times_are_in_utc() -> None:
    assert time_text(0) == "1970-01-01T00:00:00Z"


# ---- errors


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (QueueFull("later"), "later"),
        (ModelNotFound("no agent serves it", field="model"), "model not found: no agent serves it"),
    ],
)
def test_an_error_is_one_sentence(error: RequestError, told: str) -> None:
    body = ollama_error(error)
    check(OllamaError, body)
    assert ResponseError(to_json(body).decode(), 404).error == told


# ---- as declared


@pytest.mark.parametrize("events", [CALLS, [Token("a", log_probs=LOG_PROBS), DONE]])
def test_chats(events: list[object]) -> None:
    for line in (*lines(events), whole_chat(HEAD, gathered(events))):
        check(OllamaChat, line)


def test_texts() -> None:
    events = [Token("hm", "reasoning"), Token("a", log_probs=LOG_PROBS), DONE]
    check(OllamaText, whole_text(HEAD, gathered(events)))
