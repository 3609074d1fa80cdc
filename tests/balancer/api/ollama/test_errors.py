"""Errors as Ollama's clients read them."""

import pytest
from ollama import ResponseError
from pydantic_core import to_json

from arriero.balancer.api.ollama.answer_types import OllamaError
from arriero.balancer.api.ollama.errors import ollama_error
from arriero.shared.errors import ModelNotFound, QueueFull, RequestError
from tests.balancer.api.declared import check


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
