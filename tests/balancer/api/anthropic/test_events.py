"""The events of a message: their order, and that they add up to the message."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.api.anthropic.errors import AnthropicError, anthropic_error
from arriero.balancer.api.anthropic.events import SIGNATURE, MessageAnswer, MessageEvents
from arriero.balancer.api.common.event_stream import frames
from arriero.shared.errors import EngineFailed, QueueFull
from arriero.shared.inference import (
    Begun,
    Done,
    Event,
    Failed,
    Notice,
    Timings,
    Token,
    ToolCall,
    ToolCallStarted,
    Usage,
)
from tests.balancer.api.anthropic.strict import (
    checked_beta_event,
    checked_beta_message,
    checked_event,
    checked_message,
)
from tests.balancer.api.declared import check
from tests.balancer.api.pushed import pushed

USAGE = Usage(prompt_tokens=9, cached_tokens=4, completion_tokens=5, reasoning_tokens=2)
TIMINGS = Timings(queue_ms=1.0, first_token_ms=2.0, total_ms=2600.0)
Json = dict[str, Any]


def done(reason: str = "stop", stop_string: str | None = None) -> Done:
    return Done(reason, USAGE, TIMINGS, "agent-1", stop_string)


def call(arguments: str, id: str = "t1") -> list[Event]:
    return [ToolCallStarted(id, "f"), Token(arguments, "tool_call"), ToolCall(id, "f", arguments)]


def run(
    *events: Event, max_tokens: int | None = 5, **options: Any
) -> tuple[list[Json], MessageEvents]:
    machine = MessageEvents("r", model="demo", max_tokens=max_tokens, **options)
    told = machine.begin()
    for event in events:
        told += machine.take(event)
    return told, machine


def types(told: list[Json]) -> list[str]:
    return [event.get("delta", {}).get("type") or event["type"] for event in told]


def test_the_prompt_is_counted_from_the_start() -> None:
    machine = MessageEvents("r", model="demo", max_tokens=5)
    assert machine.take(Begun(9, 4)) == []
    start, _ = machine.begin()
    usage = start["message"]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (5, 4)
    assert usage["output_tokens"] == 0
    checked_event(start)


def test_text() -> None:
    told, machine = run(Token("Hel"), Token(""), Token("lo"), done())
    assert types(told) == [
        "message_start",
        "ping",
        "content_block_start",
        "text_delta",
        "text_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert machine.message == {
        "id": "msg_r",
        "type": "message",
        "role": "assistant",
        "model": "demo",
        "content": [{"type": "text", "text": "Hello", "citations": None}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
        "usage": {
            "service_tier": "standard",
            "inference_geo": None,
            "server_tool_use": None,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "input_tokens": 5,
            "cache_read_input_tokens": 4,
            "cache_creation_input_tokens": 0,
            "output_tokens": 5,
            "output_tokens_details": {"thinking_tokens": 2},
        },
    }


DIRECT = {"caller": {"type": "direct"}}


def test_thinking_and_calls() -> None:
    told, machine = run(
        Token("hm", "reasoning"), *call('{"a":1}'), *call("", "t2"), done("tool_calls")
    )
    assert types(told)[2:-2] == [
        *("content_block_start", "thinking_delta", "signature_delta", "content_block_stop"),
        *("content_block_start", "input_json_delta", "content_block_stop"),
        *("content_block_start", "content_block_stop"),
    ]
    assert machine.message["stop_reason"] == "tool_use"
    assert machine.message["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}, **DIRECT},
        {"type": "tool_use", "id": "t2", "name": "f", "input": {}, **DIRECT},
    ]


def test_thinking_without_its_text() -> None:
    told, machine = run(
        Token("hm", "reasoning"),
        Token("so", "reasoning"),
        Token("a"),
        done(),
        hides_thinking=True,
    )
    assert types(told)[2:-2] == [
        *("content_block_start", "ping", "ping", "signature_delta", "content_block_stop"),
        *("content_block_start", "text_delta", "content_block_stop"),
    ]
    assert replayed(told) == machine.message
    assert machine.message["content"] == [
        {"type": "thinking", "thinking": "", "signature": SIGNATURE},
        {"type": "text", "text": "a", "citations": None},
    ]
    for event in told:
        checked_event(event)


CHANGES = [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}}]


def test_a_summary_is_one_block() -> None:
    told, machine = run(
        Token("hm", "reasoning"), Token("All "), Token("of it."), done(), summarizes=CHANGES
    )
    assert types(told)[2:-2] == [
        *("ping", "content_block_start", "ping", "ping"),
        *("compaction_delta", "content_block_stop"),
    ]
    assert machine.message["stop_reason"] == "compaction"
    assert machine.message["content"] == [
        {"type": "compaction", "content": "All of it.", "tool_changes": CHANGES}
    ]
    assert told[-4]["delta"] == {"type": "compaction_delta", "content": "All of it."}
    for event in told:
        checked_beta_event(event)
    checked_beta_message(machine.message)


@pytest.mark.parametrize("pieces", [[], [Token("hm", "reasoning")]])
def test_a_model_that_gives_no_summary(pieces: list[Event]) -> None:
    told, machine = run(*pieces, done(), summarizes=[])
    assert machine.message["content"] == [
        {"type": "compaction", "content": None, "tool_changes": []}
    ]
    assert types(told)[-4:-2] == ["content_block_start", "content_block_stop"]
    checked_beta_message(machine.message)


def test_a_summary_that_was_cut_off_is_told_as_such() -> None:
    _, machine = run(Token("All"), done("length"), summarizes=[])
    assert machine.message["stop_reason"] == "max_tokens"


@pytest.mark.parametrize(
    ("end", "reason", "sequence"),
    [
        (done("stop"), "end_turn", None),
        (done("stop", "END"), "stop_sequence", "END"),
        (done("length"), "max_tokens", None),
        (done("tool_calls", "END"), "tool_use", None),
        (done("cancelled"), "end_turn", None),
    ],
)
def test_why_it_stopped(end: Done, reason: str, sequence: str | None) -> None:
    _, machine = run(Token("a"), end)
    assert machine.message["stop_reason"] == reason
    assert machine.message["stop_sequence"] == sequence


def test_a_full_context_is_not_max_tokens() -> None:
    _, machine = run(Token("a"), done("length"), max_tokens=6)
    assert machine.message["stop_reason"] == "model_context_window_exceeded"


def test_nothing_was_to_be_generated() -> None:
    _, machine = run(done(), max_tokens=0)
    assert (machine.message["content"], machine.message["stop_reason"]) == ([], "max_tokens")


@pytest.mark.parametrize(
    ("arguments", "input"),
    [('{"a": 1, "b": [2', {"a": 1, "b": [2]}), ("[1]", {}), ("{what", {}), ('{"a"', {})],
)
def test_arguments_that_are_not_whole(arguments: str, input: Json) -> None:
    _, machine = run(*call(arguments), done("length"))
    assert machine.message["content"][0]["input"] == input


def test_an_error_is_the_last_event() -> None:
    told, _ = run(Token("a"), Failed(EngineFailed("broke")))
    assert types(told)[-2:] == ["content_block_stop", "error"]
    assert told[-1] == {
        "type": "error",
        "error": {"type": "api_error", "message": "broke"},
        "request_id": "r",
    }


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
    st.lists(st.sampled_from(["{", "}", '"a"', ":", "1", " "]), max_size=6),
)
PIECES = st.lists(st.lists(SAID, max_size=3) | CALLS | st.just([Notice("a", "b")]), max_size=6)
ENDS = st.sampled_from(["stop", "length", "tool_calls", "cancelled"]).map(done) | st.just(
    Failed(EngineFailed("broke"))
)


@given(PIECES, ENDS)
def test_any_stream_gives_a_valid_sequence(pieces: list[list[Event]], end: Event) -> None:
    told, machine = run(*(event for piece in pieces for event in piece), end)
    for event in told:
        checked_event(event)
    checked_message(machine.message)
    assert types(told)[:2] == ["message_start", "ping"]
    rebuilt = replayed(told)
    for block in (*rebuilt["content"], *machine.message["content"]):
        block.pop("input", None)
        block.pop("partial_json", None)
    assert rebuilt == machine.message


@given(PIECES, ENDS)
def test_what_is_written_is_what_is_taken(pieces: list[list[Event]], end: Event) -> None:
    told, written = (MessageEvents("r", model="demo", max_tokens=5) for _ in range(2))
    for event in (event for piece in [*pieces, [end]] for event in piece):
        assert written.write(event) == frames(told.take(event))
    assert written.message == told.message


@given(PIECES, ENDS, st.booleans())
def test_what_is_pushed_is_what_is_written(
    pieces: list[list[Event]], end: Event, hides_thinking: bool
) -> None:
    events = [event for piece in [*pieces, [end]] for event in piece]
    pushes, writes = (
        MessageEvents("r", model="demo", max_tokens=5, hides_thinking=hides_thinking)
        for _ in range(2)
    )
    written = b"".join(map(writes.write, events))
    assert pushed(pushes.write, pushes.frame_of, events) == written
    assert pushes.message == writes.message


@given(
    st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=3),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_arguments_add_up(arguments: Json, cuts: list[int]) -> None:
    text = json.dumps(arguments)
    places = sorted({0, len(text), *(cut % len(text) for cut in cuts)})
    parts = [Token(text[a:b], "tool_call") for a, b in pairwise(places)]
    told, machine = run(ToolCallStarted("t", "f"), *parts, ToolCall("t", "f", text), done())
    deltas = [event["delta"] for event in told if types([event]) == ["input_json_delta"]]
    assert json.loads("".join(delta["partial_json"] for delta in deltas)) == arguments
    assert machine.message["content"][0]["input"] == arguments


def replayed(told: list[Json]) -> Json:
    """The message as a client puts it together; checks that everything is in order."""
    message = told[0]["message"]
    content = message["content"]
    is_open = False
    for event in told[1:]:
        match event["type"]:
            case "content_block_start":
                assert not is_open and event["index"] == len(content)
                content.append(event["content_block"])
                is_open = True
            case "content_block_delta":
                assert is_open and event["index"] == len(content) - 1
                delta = dict(event["delta"])
                del delta["type"]
                ((name, value),) = delta.items()
                content[-1][name] = content[-1].get(name, "") + value
            case "content_block_stop":
                assert is_open and event["index"] == len(content) - 1
                is_open = False
            case "message_delta":
                assert not is_open
                message |= {**event["delta"], "usage": message["usage"] | event["usage"]}
            case other:
                assert other == "ping" or (other in ("message_stop", "error") and not is_open)
    return dict(message)


# ---- as declared


EVENTS: list[Event] = [
    Token("hm", "reasoning"),
    Token("a"),
    ToolCallStarted("c", "f"),
    Token('{"a": 1}', "tool_call"),
    ToolCall("c", "f", '{"a": 1}'),
]


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "cancelled"])
@pytest.mark.parametrize("stop_string", [None, "END"])
def test_messages(reason: str, stop_string: str | None) -> None:
    message = MessageEvents("1", model="m", max_tokens=5)
    for event in [*EVENTS, Done(reason, Usage(), TIMINGS, "a", stop_string)]:
        message.take(event)
    assert [block["type"] for block in message.message["content"]] == [
        *("thinking", "text", "tool_use"),
    ]
    check(MessageAnswer, message.message)


def test_a_message_that_has_begun() -> None:
    check(MessageAnswer, MessageEvents("1", model="m", max_tokens=5).begin()[0]["message"])


def test_errors() -> None:
    check(AnthropicError, anthropic_error(QueueFull("later"), "r"))
