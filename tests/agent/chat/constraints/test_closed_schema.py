"""What a schema means if it does not say so itself: its objects' members, and its annotations."""

import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from arriero.agent.chat.constraints.closed_schema import FORMATS, MAX_NAMES, MAX_PARTS, closed
from arriero.agent.chat.constraints.lark import json_part

TEXT = {"type": "string"}
POINT: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
}
NAMED: dict[str, Any] = {"type": "object", "properties": {"name": TEXT}, "required": ["name"]}


def is_taken(schema: dict[str, Any], value: Any) -> bool:
    """Whether a model that is held to `schema` can write `value`."""
    grammar = json.dumps({"grammars": [json_part(schema, is_lenient=False)]})
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    tokens = tokenizer.tokenize_str(json.dumps(value, separators=(",", ":")))
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (POINT, {"x": 1}, {"x": 1, "y": 2}),
        ({"type": "object", "properties": {}}, {}, {"a": 1}),
        ({"type": "array", "items": POINT}, [{"x": 1}], [{"x": 1, "y": 2}]),
        (
            {"type": "object", "properties": {"at": POINT}},
            {"at": {"x": 1}},
            {"at": {"x": 1, "y": 2}},
        ),
        ({"anyOf": [POINT, NAMED]}, {"name": "a"}, {"name": "a", "y": 1}),
        ({"$ref": "#/$defs/P", "$defs": {"P": POINT}}, {"x": 1}, {"x": 1, "y": 2}),
        (
            {"allOf": [{"$ref": "#/$defs/P"}], "description": "one", "$defs": {"P": POINT}},
            {"x": 1},
            {"x": 1, "y": 2},
        ),
        ({"allOf": [POINT, NAMED]}, {"x": 1, "name": "a"}, {"x": 1, "name": "a", "y": 1}),
        (
            {"allOf": [{"$ref": "#/$defs/P"}, NAMED], "$defs": {"P": POINT}},
            {"x": 1, "name": "a"},
            {"x": 1, "name": "a", "y": 1},
        ),
        (
            {**POINT, "anyOf": [NAMED, {"properties": {"age": {"type": "integer"}}}]},
            {"x": 1, "name": "a"},
            {"x": 1, "name": "a", "y": 1},
        ),
    ],
)
def test_objects_are_closed(schema: dict[str, Any], good: Any, bad: Any) -> None:
    assert is_taken(schema, good)
    assert not is_taken(schema, bad)


@pytest.mark.parametrize(
    "schema",
    [
        {**POINT, "additionalProperties": True},
        {**POINT, "additionalProperties": {"type": "integer"}},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
    ],
)
def test_a_schema_that_says_so_is_open(schema: dict[str, Any]) -> None:
    assert is_taken(schema, {"x": 1, "y": 2})
    assert closed(schema) == schema


def test_what_is_within_an_open_object_is_closed() -> None:
    schema = {"type": "object", "additionalProperties": POINT}
    assert is_taken(schema, {"a": {"x": 1}})
    assert not is_taken(schema, {"a": {"x": 1, "y": 2}})


def test_a_definition_is_closed_by_itself_and_open_as_a_part() -> None:
    schema = {
        "$defs": {"P": POINT},
        "type": "object",
        "properties": {
            "alone": {"$ref": "#/$defs/P"},
            "named": {"allOf": [{"$ref": "#/$defs/P"}, NAMED]},
        },
    }
    assert is_taken(schema, {"alone": {"x": 1}, "named": {"x": 1, "name": "a"}})
    assert not is_taken(schema, {"alone": {"x": 1, "name": "a"}})


def test_what_refers_to_itself_comes_to_an_end() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/T"}}}
    schema = {"$ref": "#/$defs/T", "$defs": {"T": tree}}
    assert is_taken(schema, {"next": {"next": {}}})
    assert not is_taken(schema, {"next": {"other": {}}})
    parts = {"allOf": [{"$ref": "#/$defs/T"}, NAMED], "$defs": {"T": tree}}
    assert is_taken(parts, {"next": {}, "name": "a"})


@pytest.mark.parametrize("reference", ["#", "#/properties/a", "#/$defs/none", "other.json"])
def test_parts_that_lie_elsewhere_leave_the_schema_as_it_is(reference: str) -> None:
    schema = {"allOf": [{"$ref": reference}, NAMED], "properties": {"a": POINT}}
    assert closed(schema) == schema


def test_an_object_of_very_many_parts_stays_as_it_is() -> None:
    schema = {"allOf": [NAMED] * (MAX_PARTS + 1)}
    assert closed(schema) == schema


def test_lists_of_names_that_many_objects_refer_to_are_not_copied_for_each() -> None:
    """Half a megabyte of schema would become a gigabyte."""
    listed = {"a": {"properties": {f"x{n}": {} for n in range(2000)}}}
    both = {"allOf": [{"$ref": "#/$defs/a"}, NAMED]}
    made = closed({"anyOf": [both] * 500, "$defs": listed})
    assert sum(len(each.get("properties", {})) for each in made["anyOf"]) <= MAX_NAMES


def test_the_given_schema_is_not_changed() -> None:
    schema = {"type": "object", "properties": {"at": dict(POINT)}}
    before = json.dumps(schema)
    closed(schema)
    assert json.dumps(schema) == before


@pytest.mark.parametrize(
    "schema", [{"properties": 1}, {"allOf": 1}, {"anyOf": [1, True]}, {"$defs": 1, "items": []}]
)
def test_what_is_malformed_is_left_to_the_compiler(schema: dict[str, Any]) -> None:
    assert closed(schema) == schema


# ---- annotations

TEXTS = {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "format": "password"}, "a"),
        ({"type": "object", "properties": {"format": {"format": "uuid4"}}}, {"format": "a"}),
        ({**TEXTS, "items": {"type": "string", "format": "path"}}, ["a"]),
        ({"anyOf": [{"type": "string", "format": "binary"}, {"type": "null"}]}, "a"),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "string", "format": "iri"}}}, "a"),
        (
            {"allOf": [{"$ref": "#/properties/a"}], "properties": {"a": {"format": "byte"}}},
            {"a": "b"},
        ),
        (
            {"properties": {"a": {"$defs": {"b": {"format": "c"}}, "items": {"format": "c"}}}},
            {"a": ["x"]},
        ),
        (
            {
                "properties": {
                    "a": {"$ref": "#/properties/b/$defs/c"},
                    "b": {"$defs": {"c": {"type": "string", "format": "path"}}},
                }
            },
            {"a": "x"},
        ),
        ({**TEXTS, "uniqueItems": False, "minContains": 1}, ["a", "a"]),
        ({**TEXTS, "contains": {}, "unevaluatedItems": True}, ["a"]),
        ({**POINT, "propertyNames": {}, "dependentRequired": {}, "not": False}, {"x": 1}),
        ({**POINT, "if": {"required": ["x"]}}, {"x": 1}),
        ({**POINT, "then": {"required": ["y"]}}, {"x": 1}),
        ({"type": "string", "default": {"format": "path"}, "x-order": 1, "nullable": True}, "a"),
        (
            {"enum": [{"format": "path", "uniqueItems": False}]},
            {"format": "path", "uniqueItems": False},
        ),
    ],
)
def test_what_only_annotates_is_no_constraint(schema: dict[str, Any], value: Any) -> None:
    assert is_taken(schema, value)


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_known_formats_are_enforced(format: str) -> None:
    assert not is_taken({"type": "string", "format": format}, "no such thing")


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            {"type": "object", "properties": {"x": {}}, "required": ["x", "y"]},
            {"x": 1, "y": [2]},
            {"x": 1},
        ),
        (
            {"allOf": [POINT, {"required": ["y"]}]},
            {"x": 1, "y": 2},
            {"x": 1},
        ),
        ({"type": "object", "required": ["x"]}, {"x": 1}, {}),
    ],
)
def test_a_required_member_without_a_schema_may_be_anything(
    schema: dict[str, Any], good: Any, bad: Any
) -> None:
    assert is_taken(schema, good)
    assert not is_taken(schema, bad)
