"""What the document says of the native API."""

import jsonschema

from arriero.balancer.api.native.operations import NATIVE_ERRORS
from arriero.balancer.api.transport.http import native_error
from arriero.shared.errors import InvalidRequest, QueueFull
from tests.balancer import documents

DOCUMENT = documents.inference()


def check(name: str, value: object) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(schema).validate(value)


def test_errors_are_described() -> None:
    check("ErrorAnswer", native_error(QueueFull("later")))
    check("ErrorAnswer", native_error(InvalidRequest("wrong", field="prompt")))
    assert NATIVE_ERRORS.word(QueueFull("later")) == "queue_full"


def test_a_stream_says_what_its_lines_are() -> None:
    answer = DOCUMENT["paths"]["/api/v1/generate"]["post"]["responses"]["200"]["content"]
    item = {"$ref": "#/components/schemas/NativeEvent"}
    assert answer["application/x-ndjson"] == answer["text/event-stream"] == {"x-item-schema": item}
    assert answer["application/json"]["schema"] == {"$ref": "#/components/schemas/Answer"}
