"""What the Responses API answers is as its types say."""

import pytest

from arriero.balancer.api.openai.responses.answer_types import InputItems, Response
from arriero.balancer.api.openai.responses.events import ResponseEvents
from arriero.balancer.api.openai.responses.items import with_ids
from arriero.balancer.api.openai.responses.listing import Page, input_list
from arriero.balancer.api.openai.responses.requests import parse_response
from arriero.shared.errors import EngineFailed, RateLimited
from arriero.shared.inference import (
    Done,
    Event,
    Failed,
    LogProb,
    Token,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
    Usage,
)
from tests.balancer.api.declared import check
from tests.balancer.api.fake_runtime import TIMINGS

LIKELY = LogProb(5, b"a", -0.5)
EVENTS: list[Event] = [
    Token("hm", "reasoning"),
    Token("a", log_probs=(TokenLogProbs(LIKELY, (LIKELY,)),)),
    ToolCallStarted("c", "f"),
    Token("{}", "tool_call"),
    ToolCall("c", "f", "{}"),
]
ENDS: list[Event] = [
    *(Done(reason, Usage(), TIMINGS, "a") for reason in ("stop", "length", "cancelled")),
    Failed(EngineFailed("broken")),
    Failed(RateLimited("later")),
]
PLAIN = b'{"input": "hi"}'
FULL = b"""{"input": "hi", "metadata": {"a": "b"}, "instructions": "be short", "temperature": 0.5,
"tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
"tool_choice": {"type": "function", "name": "f"}, "reasoning": {"effort": "low"},
"text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}}}}"""
INPUT = b"""{"input": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
{"type": "reasoning", "summary": [{"type": "summary_text", "text": "c"}]},
{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
{"type": "function_call_output", "call_id": "c", "output": "d"}]}"""


@pytest.mark.parametrize("body", [PLAIN, FULL])
@pytest.mark.parametrize("end", ENDS, ids=str)
def test_responses(body: bytes, end: Event) -> None:
    events = ResponseEvents("1", created_at=5, echo=parse_response(body).echo("m"))
    for told in events.begin():
        check(Response, told["response"])
    for event in [*EVENTS, end]:
        events.take(event)
    assert [item["type"] for item in events.response["output"]] == [
        *("reasoning", "message", "function_call"),
    ]
    check(Response, events.response)


@pytest.mark.parametrize("body", [b'{"input": []}', INPUT])
def test_pages_of_input(body: bytes) -> None:
    check(InputItems, input_list(with_ids(parse_response(body).input, "1"), Page()))
