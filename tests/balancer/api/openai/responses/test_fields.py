"""Everything that OpenAI's library knows of responses, betas included, is of one kind."""

import json
from typing import Any

import pytest
from openai.types.beta import BetaResponseStreamEvent
from openai.types.beta import response_create_params as beta_create_params
from openai.types.beta.responses import input_token_count_params as beta_count_params
from openai.types.responses import (
    ResponseStreamEvent,
    input_token_count_params,
    response_create_params,
)

from arriero.balancer.api.fields.field_table import OTHER, FieldNotes
from arriero.balancer.api.openai.responses.events import ResponseEvents
from arriero.balancer.api.openai.responses.fields import NEVER_SENT
from arriero.balancer.api.openai.responses.requests import RESPONSE_FIELDS, parse_response
from arriero.shared.errors import EngineFailed, InvalidRequest
from arriero.shared.inference import (
    Done,
    Event,
    Failed,
    JsonSchemaGrammar,
    Token,
    ToolCall,
    ToolCallStarted,
    Usage,
)
from tests.balancer.api.fake_runtime import TIMINGS
from tests.balancer.api.sdk_fields import unlisted
from tests.balancer.api.sdk_types import undecided

WHOLE = ["input[].content[].annotations[]", "input[].content[].logprobs[]"]
FUNCTION = {"type": "function", "name": "f"}


@pytest.mark.parametrize(
    "parameters",
    [
        response_create_params.ResponseCreateParamsBase,
        beta_create_params.ResponseCreateParamsBase,
        input_token_count_params.InputTokenCountParams,
        beta_count_params.InputTokenCountParams,
    ],
)
def test_everything_in_a_request_is_of_one_kind(parameters: Any) -> None:
    assert unlisted(RESPONSE_FIELDS, parameters, whole=WHOLE) == []


def test_every_type_of_event_is_sent_or_it_is_said_why_not() -> None:
    answer: list[Event] = [Token("hm", "reasoning"), Token("a"), ToolCallStarted("c", "f")]
    answer += [Token("{}", "tool_call"), ToolCall("c", "f", "{}")]
    ends: list[Event] = [Done("stop", Usage(), TIMINGS, "a"), Done("length", Usage(), TIMINGS, "a")]
    sent = {"error"}  # what a stream that breaks off tells
    for end in (*ends, Failed(EngineFailed("broken"))):
        sent |= types_of(*answer, end)
    for union in (ResponseStreamEvent, BetaResponseStreamEvent):
        assert undecided(union, sent, NEVER_SENT) == []


def types_of(*events: Event) -> set[str]:
    """The types of all that is sent for `events`."""
    echo = parse_response(b'{"input": "a"}').echo("m")
    answer = ResponseEvents("1", created_at=5, echo=echo, is_background=True)
    told = [*answer.begin(), *(each for event in events for each in answer.take(event))]
    return {each["type"] for each in told}


def read(**body: Any) -> tuple[dict[str, Any], FieldNotes]:
    notes = FieldNotes()
    parsed = parse_response(json.dumps({"input": "hi", **body}).encode(), notes)
    return dict(parsed.echo("m")), notes


def test_tools_that_are_no_functions_are_left_out_and_told_by_type() -> None:
    space = {"type": "namespace", "name": "s", "tools": [FUNCTION, {"type": "custom"}]}
    kept, notes = read(tools=[{"type": "web_search"}, FUNCTION, space, {"type": "brand_new"}])
    assert [tool["type"] for tool in kept["tools"]] == ["function", "namespace"]
    assert [tool["name"] for tool in kept["tools"][1]["tools"]] == ["f"]
    assert notes.labels == ("tools[].type=web_search", "tools[].tools[].type=custom", OTHER)
    assert notes.names[-1] == "tools[].type=brand_new"


def test_items_of_other_tools_are_refused_by_name() -> None:
    item = {"type": "local_shell_call", "id": "1", "call_id": "c", "action": {}}
    with pytest.raises(InvalidRequest, match=r"`input\[0\].type`: 'local_shell_call' is not"):
        read(input=[item])
    _, notes = read(input=[{"type": "web_search_call", "id": "1"}, {"role": "user", "content": ""}])
    assert notes.labels == ("input[].type=web_search_call",)


@pytest.mark.parametrize(
    "fields",
    [
        {"guided_json": {"type": "null"}},
        {"structured_outputs": {"json": {"type": "null"}}},
        {
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "null"}}},
            "guided_json": {"type": "null"},
        },
    ],
)
def test_vllms_constraints_are_obeyed(fields: Any) -> None:
    grammar = parse_response(json.dumps({"input": "hi", **fields}).encode()).request(()).grammar
    assert grammar == JsonSchemaGrammar(type="json_schema", schema={"type": "null"})


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_regex"),
        ({"guided_regex": "a", "ignore_eos": True}, "guided_regex"),
        ({"text": {"format": {"type": "json_object"}}, "guided_regex": "a"}, "text.format"),
        ({"guided_json": "{"}, "guided_json"),
        ({"structured_outputs": {"regex": 1}}, "structured_outputs.regex"),
    ],
)
def test_wrong_constraints_are_named(fields: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(**fields)
    assert caught.value.field == field


def test_an_agents_refusal_of_a_constraint_names_its_field() -> None:
    requested = parse_response(b'{"input": "hi", "guided_json": {"type": "?"}}')
    for field, own in (("grammar.schema", "guided_json"), ("messages", "input")):
        told = requested.field_names.renamed(InvalidRequest(f"`{field}` is wrong", field=field))
        assert told.field == own
