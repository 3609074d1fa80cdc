"""Bodies and answers become schemas that say all of their types and nothing more."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired

import jsonschema
import pytest
from pydantic import Field, TypeAdapter
from typing_extensions import TypeAliasType, TypedDict

from arriero.balancer.api.openapi.schemas import Body, described, untitled
from arriero.shared.strict import STRICT

# ---- bodies


@dataclass(frozen=True, kw_only=True)
class _Part:
    __pydantic_config__ = STRICT

    size: Annotated[int, Field(ge=1, le=3)]


@dataclass(frozen=True, kw_only=True)
class _Whole:
    __pydantic_config__ = STRICT

    parts: tuple[_Part, ...]
    note: str = ""


BODY = Body(
    name="Whole",
    adapter=TypeAdapter(_Whole),
    also={"note": TypeAdapter(int)},
)


def takes(body: Body, value: object) -> bool:
    components = {"schemas": body.schemas()}
    schema = {"$ref": "#/components/schemas/Whole", "components": components}
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def test_components_bear_the_bodys_name() -> None:
    assert list(BODY.schemas()) == ["Whole", "Whole._Part"]
    content = BODY.described()["content"]["application/json"]
    assert content == {"schema": {"$ref": "#/components/schemas/Whole"}}


@pytest.mark.parametrize(
    ("value", "is_taken"),
    [
        ({"parts": []}, True),
        ({"parts": [{"size": 3}]}, True),
        ({"parts": [{"size": 4}]}, False),
        ({"parts": [{"size": None}]}, False),
        ({}, False),
        ({"parts": None}, False),
        ({"parts": [], "note": None}, True),
        ({"parts": [], "note": 1}, True),
        ({"parts": [], "note": True}, False),
        ({"parts": [], "other": 1}, False),
    ],
)
def test_what_is_taken(value: object, is_taken: bool) -> None:
    assert takes(BODY, value) == is_taken


def test_doors_that_take_no_nulls_say_so() -> None:
    strict = Body(name="Whole", adapter=TypeAdapter(_Whole), takes_nulls=False)
    assert takes(strict, {"parts": [], "note": ""})
    assert not takes(strict, {"parts": [], "note": None})


# ---- answers


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


def test_titles_and_empty_defaults_go() -> None:
    """A property may be called `title`."""
    schema = {"title": "A", "properties": {"title": {"type": "string", "default": None}}}
    assert untitled([schema]) == [{"properties": {"title": {"type": "string"}}}]
    assert untitled({"default": 0}) == {"default": 0}
