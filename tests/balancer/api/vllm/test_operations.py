"""What the document says of vLLM's calls, against bodies and answers of theirs."""

import jsonschema
import pytest

from tests.balancer import documents

COMPONENTS = documents.inference()["components"]


def takes(name: str, value: object) -> bool:
    schema = {"$ref": f"#/components/schemas/{name}", "components": COMPONENTS}
    return jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("name", "value", "is_taken"),
    [
        ("VllmTokenizeBody", {"prompt": "x", "add_special_tokens": False}, True),
        ("VllmTokenizeBody", {"prompt": "x", "return_token_strs": False}, True),
        ("VllmTokenizeBody", {"prompt": "x", "return_token_strs": True}, False),
        ("VllmTokenizeBody", {"prompt": 1}, False),
        ("VllmDetokenizeBody", {"tokens": [1]}, True),
        ("VllmDetokenizeBody", {"tokens": [-1]}, False),
        ("VllmText", {"prompt": "x"}, True),
        ("VllmText", {}, False),
    ],
)
def test_bodies_and_answers_are_described(name: str, value: object, is_taken: bool) -> None:
    assert takes(name, value) == is_taken
