"""Where in a schema the fault is."""

import json
from typing import Any

import pytest

from arriero.agent.chat.grammar.grammar import Schema
from arriero.agent.chat.grammar.schema_place import MAX_TRIED, MAX_TRIES, schema_place
from tests.agent.saying import demo_grammars

BAD = {"type": "strig"}


def place(schema: Any, *, is_lenient: bool = False) -> str | None:
    found = schema_place(Schema("here", schema, is_lenient), demo_grammars().complaint)
    return found[0] if found else None


@pytest.mark.parametrize(
    ("schema", "step"),
    [
        (BAD, ""),
        ({"type": "object", "properties": {"a": BAD}}, ".properties.a"),
        ({"type": "object", "properties": {"a b": BAD}}, '.properties["a b"]'),
        ({"type": "array", "items": {"anyOf": [{"type": "null"}, BAD]}}, ".items.anyOf[1]"),
        (
            {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"items": BAD}}},
            ".properties.a",
        ),
        ({"properties": {"a": {"items": {"$ref": "#/$defs/no"}}}}, ".properties.a.items"),
        ({"properties": {"a": {"type": "string", "not": {"const": "x"}}}}, ".properties.a"),
        ({"properties": {"a": {"pattern": "(?=x)", "type": "string"}}}, ".properties.a"),
        ({"properties": []}, ""),
    ],
)
def test_the_smallest_part_with_which_it_is_wrong(schema: Any, step: str) -> None:
    assert place({"type": "object", **schema}) == f"here{step}"


def test_nothing_wrong_is_no_place() -> None:
    assert place({"type": "object", "properties": {"a": {"type": "string"}}}) is None
    assert place({"type": "string", "not": {"const": "x"}}, is_lenient=True) is None


def test_there_is_an_end_to_the_search() -> None:
    tried: list[str] = []

    def complaint(grammar: str) -> str | None:
        tried.append(grammar)
        return "bad" if '"last"' in grammar else None

    properties: dict[str, Any] = {f"p{n}": {} for n in range(2 * MAX_TRIES)}
    schema = {"properties": {**properties, "last": {"const": "last"}}}
    assert schema_place(Schema("here", schema), complaint) == ("here", "bad")
    assert len(tried) <= MAX_TRIES + 1
    assert json.loads(tried[0])


def test_large_definitions_leave_fewer_tries() -> None:
    """They are compiled anew with each part."""
    num_characters = 0

    def complaint(grammar: str) -> str | None:
        nonlocal num_characters
        num_characters += len(grammar)
        return "bad" if '"last"' in grammar else None

    properties: dict[str, Any] = {f"p{n}": {} for n in range(400)}
    schema = {
        "$defs": {"d": {"enum": list(range(50_000))}},
        "properties": {**properties, "last": {"const": "last"}},
    }
    assert schema_place(Schema("here", schema), complaint) == ("here", "bad")
    assert num_characters <= MAX_TRIED
