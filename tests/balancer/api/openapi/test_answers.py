"""Types of answers become schemas that say all of them and nothing more."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NotRequired

import pytest
from typing_extensions import TypeAliasType, TypedDict

from arriero.balancer.api.openapi.answers import described


@dataclass
class Point:
    """Where it is."""

    x: int
    y: float | None = None


class Thing(TypedDict):
    """A thing."""

    kind: Literal["thing"]
    at: NotRequired[Point]


class Named(Thing):
    name: str


AnyThing = TypeAliasType("AnyThing", Thing | Named)


def test_a_type_is_a_component_of_its_name() -> None:
    found = described([Thing])
    assert found.schema(Thing) == {"$ref": "#/components/schemas/Thing"}
    assert found.components["Thing"] == {
        "description": "A thing.",
        "type": "object",
        "properties": {
            "kind": {"type": "string", "const": "thing"},
            "at": {"$ref": "#/components/schemas/Point"},
        },
        "required": ["kind"],
        "additionalProperties": False,
    }


def test_all_members_of_a_dataclass_are_written() -> None:
    assert described([Point]).components["Point"] == {
        "description": "Where it is.",
        "type": "object",
        "properties": {
            "x": {"type": "integer"},
            "y": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        },
        "required": ["x", "y"],
        "additionalProperties": False,
    }


def test_a_type_has_the_members_of_the_one_it_extends() -> None:
    assert described([Named]).components["Named"]["required"] == ["kind", "name"]


@pytest.mark.parametrize("many", [list[Named], Iterable[Named]])
def test_many(many: object) -> None:
    found = described([many])
    assert found.schema(many) == {"type": "array", "items": {"$ref": "#/components/schemas/Named"}}


def test_unions_with_and_without_a_name() -> None:
    union = Thing | Named
    refs = [{"$ref": f"#/components/schemas/{name}"} for name in ("Thing", "Named")]
    found = described([union, AnyThing])
    assert found.schema(union) == {"anyOf": refs}
    assert found.schema(AnyThing) == {"$ref": "#/components/schemas/AnyThing"}
    assert found.components["AnyThing"] == {"anyOf": refs}


def test_a_schema_that_was_written_by_hand_stays() -> None:
    schema = {"type": "string"}
    found = described([schema, Thing])
    assert found.schema(schema) is schema
