"""The events of a response: their order, and that they add up to the response."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.api.common.event_stream import frames
from arriero.balancer.api.openai.responses.events import ResponseEvents
from arriero.balancer.api.openai.responses.requests import parse_response
from arriero.shared.errors import EngineFailed, RateLimited
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
from tests.balancer.api.openai.responses.strict import checked_event, checked_response

USAGE = Usage(prompt_tokens=9, cached_tokens=4, completion_tokens=5, reasoning_tokens=2)
TIMINGS = Timings(queue_ms=1.0, first_token_ms=2.0, total_ms=2600.0)
ECHO = parse_response(b'{"input": "hi", "metadata": {"a": "b"}}').echo("demo")

Json = dict[str, Any]


def done(reason: str = "stop") -> Done:
    return Done(reason, USAGE, TIMINGS, "agent-1")


def call(arguments: str, id: str = "c1", name: str = "f") -> list[Event]:
    return [
        ToolCallStarted(id, name),
        Token(arguments, "tool_call"),
        ToolCall(id, name, arguments),
    ]


def run(*events: Event) -> tuple[list[Json], ResponseEvents]:
    machine = ResponseEvents("r", created_at=1000, echo=ECHO)
    told = machine.begin()
    for event in events:
        told += machine.take(event)
    return told, machine


def types(told: list[Json]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in told]


def test_text() -> None:
    told, machine = run(Token("Hel"), Token(""), Token("lo"), done())
    assert types(told) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert told[0]["response"]["status"] == "in_progress"
    assert told[0]["response"]["output"] == []
    response = machine.response
    assert response["status"] == "completed"
    assert response["completed_at"] == 1003
    assert response["output"] == [
        {
            "id": "msg_r_0",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [
                {"type": "output_text", "annotations": [], "text": "Hello", "logprobs": []}
            ],
        }
    ]
    assert response["usage"] == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 14,
    }


def test_log_probabilities() -> None:
    chosen = LogProb(1, b"a", -0.5)
    log_probs = TokenLogProbs(chosen, (chosen, LogProb(2, "é".encode()[:1], -1.5)))
    told, machine = run(Token("a", log_probs=(log_probs,)), Token("b"), done())
    delta = next(event for event in told if event["type"].endswith("output_text.delta"))
    tops = [{"token": "a", "logprob": -0.5}, {"token": "\\xc3", "logprob": -1.5}]
    assert delta["logprobs"] == [{"token": "a", "logprob": -0.5, "top_logprobs": tops}]
    (part,) = machine.response["output"][0]["content"]
    assert [each["bytes"] for each in part["logprobs"]] == [[97]]
    checked_response(machine.response)
    for event in told:
        checked_event(event)


def test_thoughts_then_calls() -> None:
    told, machine = run(Token("hm", "reasoning"), *call('{"a":1}'), *call("{}", "c2"), done())
    assert types(told)[2:-1] == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        *(
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
        )
        * 2,
    ]
    thought, first, second = machine.response["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert first == {
        "id": "fc_r_1",
        "type": "function_call",
        "status": "completed",
        "call_id": "c1",
        "name": "f",
        "arguments": '{"a":1}',
    }
    assert second["call_id"] == "c2"


def test_what_the_tokens_did_not_suffice_for_is_incomplete() -> None:
    told, machine = run(Token("a"), *call('{"a"'), done("length"))
    assert types(told)[-1] == "incomplete"
    assert machine.response["status"] == "incomplete"
    assert machine.response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert machine.response["completed_at"] is None
    assert [item["status"] for item in machine.response["output"]] == ["completed", "incomplete"]


def test_one_that_was_cancelled_is_incomplete_for_no_reason_of_its_own() -> None:
    told, machine = run(Token("a"), done("cancelled"))
    assert types(told)[-1] == "incomplete"
    assert machine.response["incomplete_details"] == {"reason": None}


@pytest.mark.parametrize(
    ("error", "code", "told_code"),
    [
        (EngineFailed("broke"), "server_error", "engine_failed"),
        (RateLimited("slow down"), "rate_limit_exceeded", "rate_limit_exceeded"),
    ],
)
def test_errors(error: Any, code: str, told_code: str) -> None:
    told, machine = run(Token("a"), Failed(error))
    assert types(told)[-2:] == ["error", "failed"]
    assert told[-2]["code"] == told_code
    assert told[-2]["message"] == error.message
    assert machine.response["status"] == "failed"
    assert machine.response["error"] == {"code": code, "message": error.message}


def test_notices_are_no_events() -> None:
    told, _ = run(Notice("slow", "wait"), Begun(7, 0), done())
    assert types(told) == ["created", "in_progress", "completed"]


def test_arguments_belong_to_a_call() -> None:
    with pytest.raises(RuntimeError):
        run(Token("{", "tool_call"))


# ---- any stream

TEXTS = st.text(max_size=4)
SAID = st.builds(lambda *said: Token(*said), TEXTS, st.sampled_from(["content", "reasoning"]))
CALLS = st.builds(
    lambda id, parts: [
        ToolCallStarted(id, "f"),
        *(Token(part, "tool_call") for part in parts),
        ToolCall(id, "f", "".join(parts)),
    ],
    st.text(min_size=1, max_size=3),
    st.lists(TEXTS, max_size=3),
)
PIECES = st.lists(st.lists(SAID, max_size=3) | CALLS | st.just([Notice("a", "b")]), max_size=6)
ENDS = st.sampled_from(["stop", "length", "tool_calls", "cancelled"]).map(done) | st.just(
    Failed(EngineFailed("broke"))
)


@given(PIECES, ENDS)
def test_any_stream_gives_a_valid_sequence(pieces: list[list[Event]], end: Event) -> None:
    told, machine = run(*(event for piece in pieces for event in piece), end)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    for event in told:
        checked_event(event)
    checked_response(machine.response)
    assert told[-1]["response"] == machine.response
    assert types(told)[:2] == ["created", "in_progress"]
    assert replayed(told[2:]) == machine.response["output"]
    text = "".join(e.text for p in pieces for e in p if isinstance(e, Token))
    assert "".join(event["delta"] for event in told if "delta" in event) == text


LOG_PROBS = (TokenLogProbs(LogProb(1, b"a", -0.5)),)
EXPLAINED = TEXTS.map(lambda text: Token(text, log_probs=LOG_PROBS))


@given(st.lists(st.lists(SAID | EXPLAINED, max_size=5) | CALLS, max_size=6), ENDS)
def test_what_is_written_is_what_is_taken(pieces: list[list[Event]], end: Event) -> None:
    told, written = (ResponseEvents("r", created_at=1, echo=ECHO) for _ in range(2))
    for event in (event for piece in [*pieces, [end]] for event in piece):
        assert written.write(event) == frames(told.take(event))
    assert written.response == told.response


def replayed(told: list[Json]) -> list[Json]:
    """The output as a client puts it together from deltas; checks that everything is in order."""
    output: list[Json] = []
    is_open = has_part = False
    for event in told:
        match event["type"].removeprefix("response."):
            case "output_item.added":
                assert not is_open
                assert event["output_index"] == len(output)
                output.append(event["item"])
                is_open = True
            case "content_part.added":
                assert is_open and not has_part and output[-1]["content"] == []
                output[-1]["content"].append(event["part"])
                has_part = True
            case "output_text.delta" | "reasoning_text.delta":
                assert has_part
                check_place(event, output)
                output[-1]["content"][event["content_index"]]["text"] += event["delta"]
            case "output_text.done" | "reasoning_text.done":
                assert output[-1]["content"][event["content_index"]]["text"] == event["text"]
            case "content_part.done":
                assert output[-1]["content"] == [event["part"]]
                has_part = False
            case "function_call_arguments.delta":
                check_place(event, output)
                output[-1]["arguments"] += event["delta"]
            case "function_call_arguments.done":
                assert output[-1]["arguments"] == event["arguments"]
                assert output[-1]["name"] == event["name"]
            case "output_item.done":
                assert is_open and not has_part
                output[-1]["status"] = event["item"]["status"]
                assert output[-1] == event["item"]
                is_open = False
            case "completed" | "incomplete" | "failed" | "error":
                assert not is_open
            case other:
                raise AssertionError(other)
    return output


def check_place(event: Json, output: list[Json]) -> None:
    assert event["output_index"] == len(output) - 1
    assert event["item_id"] == output[-1]["id"]


def test_a_call_of_a_namespaces_function() -> None:
    machine = ResponseEvents(
        "r", created_at=1000, echo=ECHO, namespaces={"crm__find": ("crm", "find")}
    )
    told = [each for event in call("{}", name="crm__find") for each in machine.take(event)]
    told += machine.take(done("tool_calls"))
    [item] = machine.response["output"]
    assert (item["namespace"], item["name"]) == ("crm", "find")
    added = next(each for each in told if each["type"] == "response.output_item.added")
    assert (added["item"]["namespace"], added["item"]["name"]) == ("crm", "find")
    checked_response(machine.response)
