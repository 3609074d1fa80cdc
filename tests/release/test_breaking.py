"""What breaks a client, and what does not."""

from copy import deepcopy
from typing import Any

import pytest

from release.breaking import breaking_changes

OLD: dict[str, Any] = {
    "paths": {
        "/v1/things": {
            "post": {
                "parameters": [{"in": "query", "name": "limit"}],
                "requestBody": {
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Ask"}}
                    }
                },
                "responses": {
                    "200": {
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}
                        }
                    }
                },
            }
        }
    },
    "components": {
        "schemas": {
            "Ask": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "size": {"type": "number"},
                    "kind": {"enum": ["a", "b"]},
                    "what": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
            },
            "Thing": {
                "type": "object",
                "required": ["id", "parts"],
                "properties": {
                    "id": {"type": "string"},
                    "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}},
                },
            },
        }
    },
}


def new() -> dict[str, Any]:
    return deepcopy(OLD)


def schema(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = document["components"]["schemas"][name]
    return found


def broken(document: dict[str, Any]) -> list[str]:
    return breaking_changes(OLD, document)


def test_the_same_breaks_nobody() -> None:
    assert broken(new()) == []


def test_more_breaks_nobody() -> None:
    document = new()
    document["paths"]["/v1/others"] = {}
    schema(document, "Ask")["properties"]["colour"] = {"type": "string"}
    schema(document, "Ask")["properties"]["kind"]["enum"].append("c")
    schema(document, "Ask")["required"] = []
    schema(document, "Thing")["properties"]["age"] = {"type": "number"}
    schema(document, "Thing")["required"].append("age")
    assert broken(document) == []


def test_a_path_that_is_gone() -> None:
    document = new()
    del document["paths"]["/v1/things"]["post"]
    assert broken(document) == ["POST /v1/things: is gone"]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("Ask", {"required": ["name", "size"]}, "body.size is required now"),
        ("Ask", {"properties": {"name": {"type": "string"}}}, "body.size is gone"),
        ("Thing", {"required": ["id"]}, "200.parts is not always there any more"),
        ("Thing", {"properties": {"parts": {"type": "array"}}}, "200.id is gone"),
    ],
)
def test_fields(name: str, change: dict[str, Any], said: str) -> None:
    document = new()
    schema(document, name).update(change)
    assert f"POST /v1/things: {said}" in broken(document)


@pytest.mark.parametrize(
    ("name", "field", "form", "said"),
    [
        ("Ask", "name", {"type": "integer"}, "body.name may no longer be string"),
        ("Ask", "kind", {"enum": ["a"]}, "body.kind may no longer be 'b'"),
        ("Ask", "what", {"anyOf": [{"type": "string"}]}, "body.what may no longer be {'null'}"),
        ("Thing", "id", {"type": ["string", "null"]}, "200.id may be null"),
        ("Thing", "id", {"type": "integer"}, "200.id may be integer"),
    ],
)
def test_values(name: str, field: str, form: dict[str, Any], said: str) -> None:
    document = new()
    schema(document, name)["properties"][field] = form
    assert f"POST /v1/things: {said}" in broken(document)


def test_a_body_may_be_wider() -> None:
    document = new()
    schema(document, "Ask")["properties"]["name"] = {"type": ["string", "null"]}
    assert broken(document) == []


def test_parameters() -> None:
    document = new()
    document["paths"]["/v1/things"]["post"]["parameters"] = [
        {"in": "query", "name": "page", "required": True}
    ]
    assert broken(document) == [
        "POST /v1/things: query limit is gone",
        "POST /v1/things: query page is required now",
    ]


def test_statuses_and_media_types() -> None:
    document = new()
    responses = document["paths"]["/v1/things"]["post"]["responses"]
    responses["200"]["content"] = {"text/plain": {}}
    assert broken(document) == ["POST /v1/things: 200 is application/json no longer"]
    responses["202"] = responses.pop("200")
    assert broken(document) == ["POST /v1/things: 200 is answered no longer"]
