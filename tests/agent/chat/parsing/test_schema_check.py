"""What the check of a value against a schema finds, and what it costs."""

import json
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.chat.parsing.schema_check import (
    MAX_WORK,
    Mismatch,
    TooDeepError,
    canonical,
    find_mismatch,
    target_of,
)


def text_of(value: object, most_depth: int = 10) -> str:
    return canonical(value, lambda _units: None, most_depth)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), ([1], [1.0]), ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1.0}), (-0.0, 0), (1e300,) * 2],
)
def test_equal_values(one: Any, other: Any) -> None:
    assert text_of(one) == text_of(other)


def test_unequal_values() -> None:
    values = [0, 1, True, False, None, "1", "true", "", [], {}, [1], [[1]], [1, 1], {"a": 1}]
    values += [{"a": [1]}, ["a"], 0.5, "a,b", ["a", "b"], ["a,b"], {"a": {}}, 10**5000, "None"]
    for one, other in combinations(values, 2):
        assert text_of(one) != text_of(other)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON_VALUES)
def test_what_json_keeps_is_the_same(value: Any) -> None:
    assert text_of(json.loads(json.dumps(value)), 20) == text_of(value, 20)


def test_it_goes_as_deep_as_it_may() -> None:
    assert text_of([[1]], 2)
    with pytest.raises(TooDeepError):
        text_of([[[1]]], 2)


@pytest.mark.parametrize(
    "value", [[0] * 100, {str(n): n for n in range(100)}, "x" * 6400, 2**6400, ["x" * 3200] * 2]
)
def test_all_work_is_told(value: Any) -> None:
    units = 0

    def spend(more: int) -> None:
        nonlocal units
        units += more

    canonical(value, spend, 10)
    assert units >= 100


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z]", "maxLength": 5},
        "age": {"type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b", 1]}, "minItems": 1, "maxItems": 2},
        "friend": {"$ref": "#"},
        "way": {"anyOf": [{"const": 1}, {"type": "string"}]},
        "place": {"$ref": "#/$defs/pl~1ace"},
        "pair": {"prefixItems": [{"type": "boolean"}], "items": False},
    },
    "required": ["name"],
    "additionalProperties": {"type": "number"},
    "$defs": {"pl/ace": {"type": "object", "additionalProperties": False, "maxProperties": 0}},
}


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, None),
        ({"age": None, "tags": ["a", 1.0], "way": "w", "place": {}, "pair": [True], "x": 2}, None),
        ({"name": 3}, Mismatch("name", "must be of type string")),
        ({"name": "ann"}, Mismatch("name", "does not match the schema's pattern")),
        ({"name": "Annabel"}, Mismatch("name", "is too long")),
        ({"age": -1}, Mismatch("age", "is too small")),
        ({"age": 150}, Mismatch("age", "is too large")),
        ({"age": True}, Mismatch("age", "must be of type integer or null")),
        ({"tags": []}, Mismatch("tags", "has too few items")),
        ({"tags": ["a", True]}, Mismatch("tags[1]", "is not one of the allowed values")),
        ({"friend": {"name": "Bo", "friend": {}}}, Mismatch("friend.friend.name", "is missing")),
        ({"way": 2}, Mismatch("way", "matches none of the allowed schemas")),
        ({"place": {"x": 1}}, Mismatch("place.x", "is unknown")),
        ({"pair": [True, 1]}, Mismatch("pair[1]", "is not allowed")),
        ({"more": "x"}, Mismatch("more", "must be of type number")),
    ],
)
def test_what_is_wrong_and_where(more: dict[str, Any], found: Mismatch | None) -> None:
    finding = find_mismatch({"name": "Ann", **more}, PERSON)
    if found is not None and found.place == "place.x":
        assert finding == Mismatch("place", "has too many members")
    else:
        assert finding == found


ROOT = {"$defs": {"a/b": {"type": "null"}}, "anyOf": [{}, {"title": "second"}]}


@pytest.mark.parametrize(
    "schema",
    [
        3,
        {"type": 3, "enum": 3, "minimum": "x", "pattern": "(", "required": 3, "anyOf": 3},
        {"$ref": "http://example.com/schema"},
        {"$ref": "#/nowhere"},
        {"not": {"format": "date"}},
        {"not": {"$ref": "#"}},
        {"oneOf": [{}, {"format": "date"}]},
        {"if": {"format": "date"}, "then": False},
    ],
)
def test_what_is_not_understood_is_no_reason_to_complain(schema: Any) -> None:
    assert find_mismatch("x", schema) is None


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#", ROOT),
        ("#/$defs/a~1b", {"type": "null"}),
        ("#/anyOf/1/title", "second"),
        ("#/anyOf/2", True),
        ("#/anyOf/-1", True),
        ("#/anyOf/x", True),
        ("#/anyOf/1/title/0", True),
        ("#/$defs/no", True),
        ("#anchor/anyOf", True),
        ("elsewhere#/anyOf", True),
        ("http://example.com/anyOf", True),
        (3, True),
    ],
)
def test_what_a_reference_leads_to(reference: object, target: object) -> None:
    assert target_of(reference, ROOT) == target


def test_there_is_an_end_to_it() -> None:
    assert find_mismatch(1, {"$ref": "#"}) is None
    doubling: dict[str, Any] = {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}
    assert find_mismatch(1, doubling) is None
    assert find_mismatch([0] * MAX_WORK + ["x"], {"items": {"type": "number"}}) is None


def deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("keyword", [{"enum": [[1]]}, {"const": [1]}])
def test_no_depth_of_values_is_too_much(keyword: dict[str, Any]) -> None:
    """As deep as JSON can be read at all, and deeper."""
    for depth in (*range(900, 1000, 3), 100_000):
        assert find_mismatch(deep(depth), keyword) is None
    assert find_mismatch(deep(50), keyword) is not None


def test_a_deep_schema_costs_no_more_than_a_deep_value() -> None:
    schema: Any = {"enum": [[1]]}
    for _ in range(2000):
        schema = {"allOf": [schema]}
    assert find_mismatch(deep(800), schema) is None


def test_an_enum_is_read_once_for_all_values() -> None:
    options = [[n] for n in range(1000)]
    listed = {"items": {"enum": options}}
    assert find_mismatch([[n % 1000] for n in range(3000)], listed) is None
    assert find_mismatch([*([n % 1000] for n in range(3000)), [-1]], listed) == Mismatch(
        "[3000]", "is not one of the allowed values"
    )


class CountedList(list[Any]):
    """A list that knows how many of its members were read."""

    num_read = 0

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            self.num_read += 1
            yield each


@pytest.mark.parametrize("keyword", ["enum", "const", "required"])
@pytest.mark.parametrize("member", [1, "x", [1]])
def test_a_long_list_in_a_schema_is_not_read_for_each_value(keyword: str, member: Any) -> None:
    many = CountedList([member] * 2 * MAX_WORK)
    values = [{"x": 1, "1": 1}] * 4
    assert find_mismatch(values, {"items": {"anyOf": [{keyword: many}, True]}}) is None
    assert many.num_read <= MAX_WORK


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["array"] * 2 * MAX_WORK},
        {"$ref": "#" + "/x" * MAX_WORK},
        {"pattern": "a" * MAX_WORK},
        {"pattern": r"(\w{100}){100}"},
        {"pattern": "(a?){3000}a{3000}b"},
    ],
    ids=lambda schema: next(iter(schema)),
)
def test_what_cannot_be_afforded_is_not_begun(schema: Any) -> None:
    assert find_mismatch("x" * 10_000, {"allOf": [schema, False]}) is None


def test_numbers_whose_hashes_collide() -> None:
    """Python's hash of an integer is its remainder; a table of these takes quadratic time."""
    options = [n * (2**61 - 1) for n in range(30_000)]
    assert find_mismatch([options[-1]] * 100, {"items": {"enum": options}}) is None
    assert find_mismatch([1], {"items": {"enum": options}}) is not None


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 2.0, "", "ab"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=6,
)
LEAVES = st.one_of(
    st.booleans(),
    st.sampled_from(
        [{"type": name} for name in ("string", "integer", "number", "null", "object", "array")]
    ),
    st.builds(lambda low: {"minimum": low}, st.integers(-3, 3)),
    st.builds(lambda most: {"maxLength": most, "maxItems": most}, st.integers(0, 3)),
    st.builds(lambda value: {"const": value}, VALUES),
    st.builds(lambda values: {"enum": values}, st.lists(VALUES, min_size=1, max_size=3)),
    st.just({"pattern": "^a"}),
    st.just({"required": ["a"]}),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            lambda a, rest: {"properties": {"a": a}, "additionalProperties": rest}, inner, inner
        ),
        st.builds(lambda first, rest: {"prefixItems": [first], "items": rest}, inner, inner),
        st.lists(inner, min_size=1, max_size=3).map(lambda ways: {"anyOf": ways}),
        st.lists(inner, min_size=1, max_size=3).map(lambda ways: {"allOf": ways}),
    ),
    max_leaves=5,
)


@given(value=VALUES, schema=SCHEMAS)
def test_as_jsonschema_has_it(value: Any, schema: Any) -> None:
    is_valid = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (find_mismatch(json.loads(json.dumps(value)), schema) is None) == is_valid


@pytest.mark.parametrize(
    ("schema", "value", "mismatch"),
    [
        ({"not": {}}, 1, Mismatch("", "matches a schema that it must not match")),
        ({"not": {"type": "string"}}, 1, None),
        (
            {"properties": {"a": {"not": {"const": 2}}}},
            {"a": 2},
            Mismatch("a", "matches a schema that it must not match"),
        ),
        ({"uniqueItems": True}, [1, 2, 1.0], Mismatch("[2]", "is there twice")),
        ({"uniqueItems": True}, [1, True, "1"], None),
        ({"uniqueItems": False}, [1, 1], None),
        (
            {"propertyNames": {"pattern": "^[a-z]+$"}},
            {"a": 1, "B": 2},
            Mismatch("B", "has a name that does not match the schema's pattern"),
        ),
        ({"if": {"type": "string"}, "then": {"minLength": 2}}, "a", Mismatch("", "is too short")),
        ({"if": {"type": "string"}, "then": {"minLength": 2}}, 1, None),
        ({"if": {"type": "string"}, "else": {"minimum": 2}}, 1, Mismatch("", "is too small")),
        (
            {"oneOf": [{"type": "integer"}, {"minimum": 0}]},
            1,
            Mismatch("", "matches more than one of the schemas"),
        ),
        ({"oneOf": [{"type": "integer"}, {"minimum": 0}]}, 1.5, None),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, Mismatch("b", "is missing")),
        ({"dependentRequired": {"a": ["b"]}}, {"b": 1}, None),
        ({"contains": {"const": 1}}, [2], Mismatch("", "has too few items of one kind")),
        ({"contains": {"const": 1}, "minContains": 0}, [2], None),
        (
            {"contains": {"const": 1}, "maxContains": 1},
            [1, 1],
            Mismatch("", "has too many items of one kind"),
        ),
    ],
)
def test_what_no_grammar_enforces_is_checked(
    schema: Any, value: Any, mismatch: Mismatch | None
) -> None:
    assert find_mismatch(value, schema) == mismatch
