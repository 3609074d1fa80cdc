import json
from typing import Any

import pytest

from arriero.agent.chat.constraints.schema import (
    MAX_TRIED,
    MAX_TRIES,
    MAX_VISITED,
    Schema,
    Unenforced,
    keywords_in,
    notice_of,
    places_of,
    schema_place,
    step,
)
from tests.agent.saying import demo_grammars


@pytest.mark.parametrize(("name", "way"), [("a", ".a"), ("$defs", ".$defs"), ("a b", '["a b"]')])
def test_a_step_says_where_a_member_is(name: str, way: str) -> None:
    assert step(name) == way


def test_schemas_are_strict_unless_told_otherwise() -> None:
    assert not Schema("tools", {}).is_lenient


BAD = {"type": "strig"}


def place(schema: Any, *, is_lenient: bool = False) -> str | None:
    with demo_grammars().judging() as complaint:
        found = schema_place(Schema("here", schema, is_lenient), complaint)
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


def test_keywords_are_read_from_warnings() -> None:
    warnings = [
        'Unimplemented keys: ["if", "not"] (2 times)',
        "oneOf not fully supported",
        "x: [1]",
    ]
    assert keywords_in(warnings) == {"if", "not"}


def test_places_are_found_and_names_of_properties_are_none() -> None:
    schema = {"properties": {"not": {"items": {"not": {}}}}, "if": {}}
    assert list(places_of(frozenset({"not", "if"}), [Schema("tools[0]", schema)])) == [
        Unenforced("tools[0]", "if"),
        Unenforced("tools[0].properties.not.items", "not"),
    ]


def test_so_much_is_looked_at_and_no_more() -> None:
    schema: dict[str, Any] = {}
    for _ in range(MAX_VISITED):
        schema = {"not": {}, "items": schema}
    assert len(list(places_of(frozenset({"not"}), [Schema("x", schema)]))) < MAX_VISITED


def test_one_notice_names_the_first_and_counts_the_rest() -> None:
    assert notice_of([]) is None
    notice = notice_of([Unenforced("a", "not"), Unenforced("b", "if")])
    assert notice is not None
    assert notice.code == "schema_not_enforced"
    assert notice.message.startswith("`a`: `not` is not enforced, and 1 more are not;")
