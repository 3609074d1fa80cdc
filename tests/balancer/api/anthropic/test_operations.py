"""What the document says of the Messages API, against its parser and its errors."""

import json

import jsonschema

from arriero.balancer.api.anthropic.errors import anthropic_error
from arriero.balancer.api.anthropic.operations import ANTHROPIC_ERRORS
from arriero.balancer.api.anthropic.requests import parse_count, parse_messages
from arriero.shared.errors import QueueFull
from tests.balancer import documents

DOCUMENT = documents.inference()
BODY = {"messages": [{"role": "user", "content": "Hi"}]}


def takes(name: str, value: object) -> bool:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def test_only_counting_goes_without_max_tokens() -> None:
    parse_count(json.dumps(BODY).encode())
    assert takes("CountMessagesBody", BODY)
    assert not takes("MessagesBody", BODY)
    body = BODY | {"max_tokens": 5}
    parse_messages(json.dumps(body).encode())
    assert takes("MessagesBody", body)


def test_errors_are_described_in_anthropics_words() -> None:
    error = QueueFull("later")
    assert takes("AnthropicError", anthropic_error(error, "r"))
    assert ANTHROPIC_ERRORS.word(error) == "overloaded_error"
