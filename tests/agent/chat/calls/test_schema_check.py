"""Values held against schemas, as the library that is known for it does."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.chat.calls.schema_check import MAX_LOOKS, Misfit, misfit

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
        ({"name": 3}, Misfit("name", "must be of type string")),
        ({"name": "ann"}, Misfit("name", "does not match its pattern")),
        ({"name": "Annabel"}, Misfit("name", "is too long")),
        ({"age": -1}, Misfit("age", "is too small")),
        ({"age": 150}, Misfit("age", "is too large")),
        ({"age": True}, Misfit("age", "must be of type integer or null")),
        ({"tags": []}, Misfit("tags", "has too few items")),
        ({"tags": ["a", True]}, Misfit("tags[1]", "is none of its values")),
        ({"friend": {"name": "Bo", "friend": {}}}, Misfit("friend.friend.name", "is missing")),
        ({"way": 2}, Misfit("way", "fits none of its schemas")),
        ({"place": {"x": 1}}, Misfit("place.x", "is unknown")),
        ({"pair": [True, 1]}, Misfit("pair[1]", "must not be there")),
        ({"more": "x"}, Misfit("more", "must be of type number")),
    ],
)
def test_what_is_wrong_and_where(more: dict[str, Any], found: Misfit | None) -> None:
    finding = misfit({"name": "Ann", **more}, PERSON)
    if found is not None and found.place == "place.x":
        assert finding == Misfit("place", "has too many members")
    else:
        assert finding == found


@pytest.mark.parametrize(
    "schema",
    [
        3,
        {"type": 3, "enum": 3, "minimum": "x", "pattern": "(", "required": 3, "anyOf": 3},
        {"$ref": "http://example.com/schema"},
        {"$ref": "#/nowhere"},
        {"not": {}},
    ],
)
def test_what_is_not_understood_is_no_reason_to_complain(schema: Any) -> None:
    assert misfit("x", schema) is None


def test_there_is_an_end_to_it() -> None:
    assert misfit(1, {"$ref": "#"}) is None
    doubling: dict[str, Any] = {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}
    assert misfit(1, doubling) is None
    assert misfit([0] * (MAX_LOOKS + 1) + ["x"], {"items": {"type": "number"}}) is None


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
    assert (misfit(json.loads(json.dumps(value)), schema) is None) == is_valid
