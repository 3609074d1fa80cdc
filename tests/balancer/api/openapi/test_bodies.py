"""A body's schema is that of the type that checks it, with what the door takes besides."""

from dataclasses import dataclass
from typing import Annotated

import jsonschema
import pytest
from pydantic import Field, TypeAdapter

from arriero.balancer.api.openapi.bodies import Body
from arriero.shared.strict import STRICT


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
    ignored=frozenset({"user"}),
    refused={"mode": frozenset({b'"plain"'})},
    also={"note": {"type": "integer"}},
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
        ({"parts": [], "user": [1]}, True),
        ({"parts": [], "mode": "plain"}, True),
        ({"parts": [], "mode": None}, True),
        ({"parts": [], "mode": "fancy"}, False),
        ({"parts": [], "other": 1}, False),
    ],
)
def test_what_is_taken(value: object, is_taken: bool) -> None:
    assert takes(BODY, value) == is_taken


def test_doors_that_take_no_nulls_say_so() -> None:
    strict = Body(name="Whole", adapter=TypeAdapter(_Whole), takes_nulls=False)
    assert takes(strict, {"parts": [], "note": ""})
    assert not takes(strict, {"parts": [], "note": None})
