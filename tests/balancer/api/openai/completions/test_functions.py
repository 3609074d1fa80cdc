"""Requests with functions as requests with tools."""

import json
from typing import Any

import pytest

from arriero.balancer.api.openai.completions.requests import CompletionsRequest, parse_chat
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import NamedTool

LOOK = {"name": "look", "parameters": {"type": "object"}}
USER = {"role": "user", "content": "Hi"}


def chat(**body: Any) -> CompletionsRequest:
    return parse_chat(json.dumps({"messages": [USER], "functions": [LOOK]} | body).encode())


@pytest.mark.parametrize(
    ("given", "choice"),
    [(None, None), ("auto", "auto"), ("none", "none"), ({"name": "look"}, NamedTool(name="look"))],
)
def test_functions_are_tools_of_which_one_is_called(given: object, choice: object) -> None:
    asked = chat(function_call=given)
    [request] = asked.requests
    assert request.tools == ({"type": "function", "function": LOOK},)
    assert (request.tool_choice, request.parallel_tool_calls) == (choice, False)
    assert asked.has_functions


def test_results_belong_to_calls_by_their_names() -> None:
    call = {"name": "look", "arguments": "{}"}
    messages = [
        USER,
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "look", "content": "nothing"},
    ]
    _, said, result = chat(messages=messages).requests[0].messages or ()
    [made] = said.tool_calls or ()
    assert made["function"] == call
    assert (result.role, result.tool_call_id, result.name) == ("tool", made["id"], "look")


def test_without_functions_a_chat_is_one_with_tools() -> None:
    asked = chat(functions=[])
    assert not asked.has_functions
    assert asked.requests[0].tools is None
    assert asked.requests[0].parallel_tool_calls is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"functions": LOOK}, "functions"),
        ({"tools": []} | {"tools": [{"type": "function", "function": LOOK}]}, "functions"),
        ({"function_call": "required"}, "function_call"),
        ({"function_call": {}}, "function_call"),
        ({"functions": None, "function_call": "auto"}, "function_call"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chat(**body)
    assert caught.value.field == field


def test_errors_of_tools_name_functions() -> None:
    names = chat().field_names
    error = InvalidRequest("no", field="tools[0].function.parameters.x")
    assert names.renamed(error).field == "functions[0].parameters.x"
    assert names.renamed(InvalidRequest("no", field="tool_choice")).field == "function_call"
