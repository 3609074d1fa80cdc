"""What the document says of the OpenAI API, against bodies and errors of it."""

import json

import jsonschema
import pytest

from arriero.balancer.api.openai.completions.requests import parse_chat, parse_completion
from arriero.balancer.api.openai.errors import openai_error
from arriero.balancer.api.openai.operations import OPENAI_ERRORS
from arriero.shared.errors import InvalidRequest, PromptTooLong
from tests.balancer import documents

DOCUMENT = documents.inference()
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


def takes(name: str, value: object) -> bool:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"stop": "x"},
        {"stop": ["x"]},
        {"temperature": None},
        {"user": 3},
        {"no_such_field": 1},
        {"modalities": ["text"]},
        {"n": 2, "stream_options": None},
    ],
)
def test_what_chat_takes_is_described(extra: dict[str, object]) -> None:
    body = CHAT | extra
    parse_chat(json.dumps(body).encode())
    assert takes("ChatBody", body)


@pytest.mark.parametrize("extra", [{"n": 0}, {"stop": ""}, {"audio": {}}, {"tools": 1}])
def test_what_chat_refuses_is_described(extra: dict[str, object]) -> None:
    body = CHAT | extra
    with pytest.raises(InvalidRequest):
        parse_chat(json.dumps(body).encode())
    assert not takes("ChatBody", body)


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_a_forced_functions_name_is_one_that_agents_take(name: str) -> None:
    """An agent closes the connection over a message that is not as the protocol has it."""
    body = CHAT | {"tool_choice": {"type": "function", "function": {"name": name}}}
    with pytest.raises(InvalidRequest):
        parse_chat(json.dumps(body).encode())
    assert not takes("ChatBody", body)


@pytest.mark.parametrize("prompt", ["a", [1, 2], ["a", "b"], [[1], [2]]])
def test_every_form_of_a_prompt_is_described(prompt: object) -> None:
    parse_completion(json.dumps({"prompt": prompt}).encode())
    assert takes("CompletionBody", {"prompt": prompt})


def test_errors_are_described_in_openais_words() -> None:
    error = PromptTooLong("too long", field="messages")
    assert takes("OpenAIError", openai_error(error))
    assert OPENAI_ERRORS.word(error) == "context_length_exceeded"
    responses = DOCUMENT["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert "`context_length_exceeded`" in responses["400"]["description"]
