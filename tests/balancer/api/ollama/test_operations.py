"""What the document says of Ollama's API, against its bodies and errors."""

import jsonschema
import pytest

from arriero.balancer.api.ollama.operations import OLLAMA_ERRORS
from arriero.shared.errors import QueueFull
from tests.balancer import documents

DOCUMENT = documents.inference()
USER = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("name", "value", "is_taken"),
    [
        ("OllamaChatBody", {"model": "m", "messages": [USER]}, True),
        ("OllamaChatBody", {"model": "m", "options": {"top_k": 5, "num_ctx": 8}}, True),
        ("OllamaChatBody", {"model": "m", "format": "json"}, True),
        ("OllamaChatBody", {"model": "m", "format": "yaml"}, False),
        ("OllamaChatBody", {"messages": [USER]}, False),
        ("OllamaGenerateBody", {"model": "m", "images": ["x"]}, True),
        ("OllamaGenerateBody", {"model": "m", "context": [1]}, False),
        ("OllamaGenerateBody", {"model": "m", "template": ""}, True),
        ("OllamaEmbedBody", {"model": "m", "input": "x"}, True),
        ("OllamaShowBody", {"model": "m", "verbose": True}, True),
        ("OllamaError", {"error": "x"}, True),
        ("OllamaError", {"error": {"message": "x"}}, False),
    ],
)
def test_bodies_and_answers_are_described(name: str, value: object, is_taken: bool) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    assert jsonschema.Draft202012Validator(schema).is_valid(value) == is_taken


def test_streams_say_what_their_lines_are() -> None:
    for path, line in (("/api/chat", "OllamaChat"), ("/api/generate", "OllamaText")):
        answer = DOCUMENT["paths"][path]["post"]["responses"]["200"]["content"]
        item = {"$ref": f"#/components/schemas/{line}"}
        assert answer["application/x-ndjson"] == {"x-item-schema": item}


def test_errors_are_described_by_their_codes() -> None:
    assert OLLAMA_ERRORS.word(QueueFull("later")) == "queue_full"
