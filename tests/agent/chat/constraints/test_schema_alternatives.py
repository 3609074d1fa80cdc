from typing import Any

import pytest

from arriero.agent.chat.constraints.lark import TooMuchWorkError, Work
from arriero.agent.chat.constraints.schema_alternatives import (
    MAX_VISITED,
    Alternative,
    Given,
    Text,
    TooManyAlternativesError,
    Typed,
    alternatives_of,
    leaves_of,
    size_in,
    whole_pattern,
    with_definitions,
)

ROOT: dict[str, Any] = {
    "$defs": {"word": {"type": "string"}, "loop": {"anyOf": [{"$ref": "#/$defs/loop"}]}}
}


def typed(type: str, **more: Any) -> Typed:
    return Typed(type, {"type": type, **more})


@pytest.mark.parametrize(
    ("schema", "ways"),
    [
        ({"type": "string"}, [Text()]),
        ({"type": "string", "minLength": 2}, [Text((r"(.|\n){2,}",))]),
        ({"type": "string", "maxLength": 2}, [Text((r"(.|\n){0,2}",))]),
        ({"type": "string", "pattern": "^a+$"}, [Text(("(a+)",))]),
        ({"type": "string", "pattern": "^a$|b"}, [Text((), ("pattern",))]),
        ({"type": "string", "format": "date"}, [Text((), ("format",))]),
        ({"type": "string", "format": "path", "x-order": 1, "minimum": 2}, [Text()]),
        ({"type": "integer", "minimum": 1}, [typed("integer", minimum=1)]),
        ({"type": ["string", "null"]}, [Text(), typed("null")]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, [Text(), typed("null")]),
        ({"enum": ["a", 1]}, [Given("a"), Given(1)]),
        ({"enum": ["a", 1], "type": "integer"}, [Given(1)]),
        ({"const": None}, [Given(None)]),
        ({"$ref": "#/$defs/word", "description": "A word."}, [Text()]),
        ({"allOf": [{"$ref": "#/$defs/word"}, {"maxLength": 3}]}, [Text((r"(.|\n){0,3}",))]),
        ({"items": {}}, [typed("array", items={})]),
        ({"properties": {}}, [typed("object", properties={})]),
        (False, []),
        ({"anyOf": [False, {"type": "null"}]}, [typed("null")]),
        ({"allOf": [{"type": "null"}, False]}, []),
    ],
)
def test_ways(schema: object, ways: list[Alternative]) -> None:
    assert alternatives_of(schema, ROOT, Work()) == ways


@pytest.mark.parametrize("schema", [True, {}, None, {"description": "Anything."}])
def test_anything_may_be_text_or_of_any_other_type(schema: object) -> None:
    text, *others = alternatives_of(schema, ROOT, Work())
    assert text == Text()
    kinds = [each.type for each in others if isinstance(each, Typed)]
    assert kinds == ["number", "boolean", "null", "array", "object"]


def test_members_of_what_is_joined_come_together() -> None:
    parts = [
        {"properties": {"a": {}}, "required": ["a"]},
        {"properties": {"b": {}}, "required": ["b"]},
    ]
    assert leaves_of({"allOf": parts}, ROOT, Work()) == [
        {"properties": {"a": {}, "b": {}}, "required": ["a", "b"]}
    ]


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "#/$defs/loop"}, {"anyOf": [{"type": "null"}] * (MAX_VISITED + 1)}],
)
def test_what_is_too_large_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(TooManyAlternativesError, match="too"):
        alternatives_of(schema, ROOT, Work())


@pytest.mark.parametrize(
    ("pattern", "whole"),
    [
        ("^a$", "(a)"),
        ("a", r"(.|\n)*(a)(.|\n)*"),
        ("^[$^|]", r"([$^|])(.|\n)*"),
        (r"^\$$", r"(\$)"),
        ("a|b", r"(.|\n)*(a|b)(.|\n)*"),
        ("^(?:a)$", "((?:a))"),
        ("^a|b$", None),
        ("a^", None),
        ("(?=a)b", None),
        (r"\ba", None),
    ],
)
def test_patterns_are_found_anywhere_in_a_text(pattern: str, whole: str | None) -> None:
    assert whole_pattern(pattern) == whole


def test_a_part_takes_along_what_its_references_lead_to() -> None:
    part = {"$ref": "#/$defs/word"}
    assert with_definitions(part, {**ROOT, "type": "object"}) == {**part, "$defs": ROOT["$defs"]}


@pytest.mark.parametrize("odd", ["2", None, -1, 1.5, True, float("inf"), float("nan"), [2]])
def test_a_bound_that_makes_no_sense_bounds_nothing(odd: object) -> None:
    (way,) = alternatives_of({"type": "string", "maxLength": odd}, {}, Work())
    assert way == Text(ignored=("maxLength",))


def test_a_bound_may_be_written_as_a_fraction() -> None:
    assert size_in({"minLength": 2.0}, "minLength") == 2
    assert size_in({}, "minLength") is None


def test_many_values_are_each_looked_at_once() -> None:
    """Against the list as well this would take minutes."""
    values = list(range(50_000))
    assert alternatives_of({"type": "integer", "enum": values}, {}, Work()) == [
        Given(each) for each in values
    ]


def test_a_given_value_has_to_be_among_the_values() -> None:
    assert alternatives_of({"const": 1, "enum": [1, 2]}, {}, Work()) == [Given(1)]
    assert alternatives_of({"const": 3, "enum": [1, 2]}, {}, Work()) == []


def many_merges(keyword: str) -> dict[str, Any]:
    parts = [{"properties": {f"p{n}": True}} for n in range(1000)]
    return {keyword: parts, "properties": {f"q{n}": True for n in range(1000)}}


@pytest.mark.parametrize(
    "schema", [many_merges("allOf"), many_merges("anyOf"), {"enum": [0] * 10_000}]
)
def test_all_work_is_told(schema: dict[str, Any]) -> None:
    """What is merged again and again counts each time."""
    with pytest.raises(TooMuchWorkError):
        alternatives_of(schema, {}, Work(100_000))


def test_a_class_that_is_never_closed_is_read_once() -> None:
    pattern = "[" * 200_000
    assert whole_pattern(pattern) == rf"(.|\n)*({pattern})(.|\n)*"
