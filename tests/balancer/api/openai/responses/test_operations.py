"""What the document says of the Responses API, against its parser."""

import json

import jsonschema
import pytest

from arriero.balancer.api.openai.responses.requests import parse_response
from tests.balancer import documents

DOCUMENT = documents.inference()
SCHEMA = {"$ref": "#/components/schemas/ResponseBody", "components": DOCUMENT["components"]}


@pytest.mark.parametrize(
    "body",
    [
        {"input": "Hi"},
        {"input": [{"role": "user", "content": "Hi"}]},
        {"input": [{"type": "function_call_output", "call_id": "c", "output": "1"}]},
        {"input": "Hi", "background": False, "truncation": "disabled", "stop": "x"},
    ],
)
def test_what_is_taken_is_described(body: dict[str, object]) -> None:
    parse_response(json.dumps(body).encode())
    jsonschema.Draft202012Validator(SCHEMA).validate(body)
