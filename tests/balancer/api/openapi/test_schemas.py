"""Schemas in few words."""

from dataclasses import dataclass

from arriero.balancer.api.openapi import schemas
from arriero.balancer.api.openapi.schemas import STRING, nullable, record, untitled


def test_a_record_has_its_members_and_no_others() -> None:
    assert record({"a": STRING}, {"b": STRING}) == {
        "type": "object",
        "properties": {"a": STRING, "b": STRING},
        "required": ["a"],
        "additionalProperties": False,
    }


def test_words() -> None:
    assert nullable(STRING) == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert schemas.listing(STRING) == {"type": "array", "items": STRING}
    assert schemas.mapping(STRING) == {"type": "object", "additionalProperties": STRING}
    assert schemas.one_of("a", "b") == {"type": "string", "enum": ["a", "b"]}
    assert schemas.ref("A") == {"$ref": "#/components/schemas/A"}


@dataclass
class Point:
    x: int
    y: float | None = None


def test_a_dataclass_lends_its_fields() -> None:
    assert schemas.fields_of(Point) == {
        "x": {"type": "integer"},
        "y": {"anyOf": [{"type": "number"}, {"type": "null"}]},
    }


def test_titles_and_empty_defaults_go() -> None:
    """A property may be called `title`."""
    schema = {"title": "A", "properties": {"title": {"type": "string", "default": None}}}
    assert untitled([schema]) == [{"properties": {"title": {"type": "string"}}}]
    assert untitled({"default": 0}) == {"default": 0}
