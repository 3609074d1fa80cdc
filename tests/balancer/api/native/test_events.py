import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from arriero.balancer.api.common.accumulator import Accumulator
from arriero.balancer.api.native.events import (
    NDJSON_LINES,
    RPC_NOTIFICATIONS,
    SERVER_SENT_EVENTS,
    AnswerFields,
    EventWriter,
    NativeEvent,
    answer_fields,
    end_fields,
)
from arriero.balancer.api.openapi.document import ErrorAnswer
from arriero.shared.errors import InvalidRequest, PromptTooLong
from arriero.shared.inference import (
    Begun,
    Done,
    Event,
    Failed,
    LogProb,
    Notice,
    Timings,
    Token,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
    Usage,
)
from tests.balancer.api.declared import check
from tests.balancer.api.fake_runtime import done
from tests.balancer.api.pushed import pushed

# Text that reached us as UTF-8 has no lone surrogates.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


SHOWN = TEXTS.filter(bool)


@given(SHOWN, TEXTS, st.sampled_from(["content", "reasoning", "tool_call"]))
def test_any_text_and_id_make_one_line(text: str, id: str, kind: str) -> None:
    writer = EventWriter({"id": id}, NDJSON_LINES)
    for _ in range(2):
        line = writer.render(Token(text, kind))
        assert line.count(b"\n") == 1
        assert json.loads(line) == {"event": "token", "id": id, "kind": kind, "text": text}


def test_progress_that_shows_nothing_is_no_event() -> None:
    writer = EventWriter({"id": "r"}, NDJSON_LINES)
    assert writer.render(Token("", "reasoning", (1,))) == b""
    assert writer.render(Begun(7, 0)) == b""


@given(SHOWN)
def test_sse_has_one_data_line_for_any_text(text: str) -> None:
    event = EventWriter({"id": "r"}, SERVER_SENT_EVENTS).render(Token(text))
    assert event.startswith(b"data: ") and event.endswith(b"\n\n")
    assert b"\n" not in event[:-2] and b"\r" not in event
    assert json.loads(event[6:])["text"] == text


def test_log_probabilities_stand_beside_their_text() -> None:
    log_probs = (TokenLogProbs(LogProb(1, b"x", -0.5)),)
    line = EventWriter({"id": "r"}, NDJSON_LINES).render(Token("x", log_probs=log_probs))
    told = [{"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}]
    assert json.loads(line) == {
        "event": "token",
        "id": "r",
        "kind": "content",
        "text": "x",
        "logprobs": told,
    }
    accumulator = Accumulator()
    for event in (Token("x", log_probs=log_probs), done()):
        accumulator.add(event)
    assert answer_fields(accumulator)["logprobs"] == told


KINDS = st.sampled_from(["content", "reasoning", "tool_call"])
LOG_PROBS = st.sampled_from([(), (TokenLogProbs(LogProb(1, b"x", -0.5)),)])


@given(st.lists(st.builds(Token, TEXTS, KINDS, log_probs=LOG_PROBS), max_size=6))
def test_what_is_pushed_is_what_is_rendered(tokens: list[Token]) -> None:
    pushes, renders = (EventWriter({"id": "r"}, SERVER_SENT_EVENTS) for _ in range(2))
    rendered = b"".join(map(renders.render, tokens))
    assert pushed(pushes.render, pushes.frame_of, tokens) == rendered


def test_notifications_for_an_entry_of_a_batch() -> None:
    writer = EventWriter({"id": 7, "item": "a"}, RPC_NOTIFICATIONS)
    assert json.loads(writer.render(Token("x"))) == {
        "jsonrpc": "2.0",
        "method": "event",
        "params": {"event": "token", "id": 7, "item": "a", "kind": "content", "text": "x"},
    }
    assert json.loads(writer.render(done()))["params"]["finish_reason"] == "stop"


def test_calls() -> None:
    writer = EventWriter({"id": "r"}, NDJSON_LINES)
    started, call = ToolCallStarted("c", "f"), ToolCall("c", "f", '{"a": 1}')
    whole = {"id": "c", "name": "f", "arguments": '{"a": 1}'}
    assert [json.loads(writer.render(event)) for event in (started, call)] == [
        {"event": "tool_call_started", "id": "r", "call": {"id": "c", "name": "f"}},
        {"event": "tool_call", "id": "r", "call": whole},
    ]
    answer = Accumulator()
    for event in (started, call, done("tool_calls")):
        answer.add(event)
    assert from_json(to_json(answer_fields(answer)))["tool_calls"] == [whole]


def test_the_stop_string_that_ended_it_is_told() -> None:
    end = replace(done("stop"), stop_string="END")
    assert end_fields(end)["stop_string"] == "END"
    assert "stop_string" not in end_fields(done("stop"))


def test_warnings_and_errors() -> None:
    writer = EventWriter({"id": "r"}, NDJSON_LINES)
    assert json.loads(writer.render(Notice("slow", "wait"))) == {
        "event": "warning",
        "id": "r",
        "code": "slow",
        "message": "wait",
    }
    failed = Failed(PromptTooLong("9 of 8", field="prompt"))
    expected = {
        "error": {
            "code": "prompt_too_long",
            "message": "9 of 8",
            "retryable": False,
            "field": "prompt",
        }
    }
    assert json.loads(writer.render(failed)) == {"event": "error", "id": "r"} | expected
    assert end_fields(failed) == expected


# ---- as declared

DONE = Done(
    finish_reason="stop",
    usage=Usage(prompt_tokens=3),
    timings=Timings(queue_ms=1, first_token_ms=None, total_ms=2),
    agent="a",
    stop_string="x",
)
LIKELY = LogProb(5, b"a", -0.5)
EVENTS: list[Event] = [
    Token("a", log_probs=(TokenLogProbs(LIKELY, (LIKELY,)),)),
    Token("a", "reasoning"),
    ToolCallStarted("c", "f"),
    ToolCall("c", "f", "{}"),
    Notice("code", "message"),
    DONE,
    Failed(InvalidRequest("wrong", field="prompt")),
]


def line(event: Event) -> Any:
    return from_json(EventWriter({"id": "1"}, NDJSON_LINES).render(event))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_is_as_declared(event: Event) -> None:
    check(NativeEvent, line(event))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("change", [{"more": 1}, {"id": None}, {"event": "other"}])
def test_another_event_is_not(event: Event, change: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        check(NativeEvent, line(event) | change)


def test_a_whole_answer_is_as_declared() -> None:
    accumulator = Accumulator()
    for event in EVENTS[:-1]:
        accumulator.add(event)
    answer = answer_fields(accumulator)
    assert answer.keys() == AnswerFields.__annotations__.keys() - {"prompt_logprobs"}
    check(AnswerFields, answer)


def test_a_failed_answer_is_as_declared() -> None:
    accumulator = Accumulator()
    accumulator.add(EVENTS[-1])
    check(ErrorAnswer, answer_fields(accumulator))
