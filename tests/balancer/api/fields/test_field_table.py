"""A body is left with the fields that are obeyed; the others are ignored and told, or refused."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Required

import pytest
from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from arriero.balancer.api.fields.field_table import (
    OTHER,
    FieldNotes,
    FieldTable,
    Ignored,
    Refused,
    nothing,
)
from arriero.shared.errors import InvalidRequest
from tests.balancer.api.sdk_fields import unlisted


@dataclass
class Text:
    type: Literal["text"]
    text: str


@dataclass
class Call:
    type: Literal["call"]
    input: dict[str, Any]


@dataclass
class Message:
    content: str | list[Annotated[Text | Call, Field(discriminator="type")]]


@dataclass
class Tool:
    name: str
    type: Literal["function"] = "function"


@dataclass
class Body:
    messages: list[Message]
    n: int = 1
    choice: Literal["auto", "none"] | Text | None = None
    include: list[Literal["usage"]] | None = None
    tools: list[Tool] | None = None


RULES = {
    "user": Ignored("there are no users"),
    "store": Ignored("nothing is stored", nothing("false")),
    "audio": Refused("answers are text"),
    "modalities": Refused("answers are text", nothing('["text"]')),
    "messages[].content[].cache": Ignored("all is cached"),
    "messages[].content[].image": Refused("there are no images"),
    "messages[].content[].type=search": Ignored("nothing is searched"),
    "messages[].content[].type=video": Refused("there are no videos"),
    "choice.type=search": Ignored("nothing is searched"),
    "choice=search": Refused("nothing is searched"),
    "include[]=sources": Ignored("there are no sources"),
    "tools[].type=search": Ignored("nothing is searched"),
    "tools[].type=*": Ignored("there are only functions"),
}
TABLE = FieldTable(TypeAdapter(Body), RULES)


def read(body: Any, *, is_strict: bool = False) -> tuple[dict[str, Any], FieldNotes]:
    notes = FieldNotes(is_strict=is_strict)
    return TABLE.given(json.dumps(body).encode(), notes), notes


def content(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"content": list(parts)}]}


def refusal(body: Any, *, is_strict: bool = False) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read(body, is_strict=is_strict)
    return caught.value


def test_what_is_obeyed_stays() -> None:
    body = {"n": 2, **content({"type": "call", "input": {"any": None, "x": [{"y": 1}]}})}
    kept, notes = read(body, is_strict=True)
    assert (kept, notes.names) == (body, ())


def test_what_is_ignored_is_told() -> None:
    kept, notes = read({"n": 2, "user": "me", "colour": "red", "x-y": {}})
    assert kept == {"n": 2}
    assert notes.names == ("user", "colour", "x-y")
    assert notes.labels == ("user", OTHER, OTHER)


def test_at_any_depth() -> None:
    text = {"type": "text", "text": "a"}
    kept, notes = read(content({**text, "cache": {"a": 1}, "input": {}}, text))
    assert kept == content(text, text)
    assert notes.names == ("messages[].content[].cache", "messages[].content[].input")


def test_entries_of_an_ignored_kind_are_left_out() -> None:
    text = {"type": "text", "text": "a"}
    kept, notes = read(content({"type": "search", "q": "x"}, text))
    assert kept == content(text)
    assert notes.labels == ("messages[].content[].type=search",)


def test_objects_and_values_of_an_ignored_kind_are_left_out() -> None:
    kept, notes = read({"choice": {"type": "search"}, "include": ["sources", "usage"]})
    assert kept == {"include": ["usage"]}
    assert notes.labels == ("choice.type=search", "include[]=sources")


def test_a_rule_for_all_other_kinds() -> None:
    function = {"name": "f"}
    kept, notes = read({"tools": [{"type": "search"}, {**function, "x": 1}, {"type": "new"}]})
    assert kept == {"tools": [function]}
    assert notes.names == ("tools[].type=search", "tools[].x", "tools[].type=new")
    assert notes.labels == ("tools[].type=search", OTHER, OTHER)


@pytest.mark.parametrize("value", [{"store": False}, {"modalities": ["text"]}, {"audio": []}])
def test_what_asks_for_nothing_is_not_told(value: dict[str, Any]) -> None:
    for is_strict in (False, True):
        kept, notes = read({"n": 1, **value}, is_strict=is_strict)
        assert (kept, notes.names) == ({"n": 1}, ())


def test_null_is_as_if_left_out() -> None:
    kept, notes = read({"n": None, "audio": None, "colour": None, "messages": [{"x": None}]})
    assert (kept, notes.names) == ({"messages": [{}]}, ())


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"audio": {}}, "audio", "`audio` is not supported: answers are text; leave it out"),
        (
            {"modalities": ["audio"]},
            "modalities",
            '`modalities` is not supported but for ["text"]: answers are text',
        ),
        (content({"type": "text", "image": 1}), "messages[0].content[0].image", "images"),
        (content({"type": "video"}), "messages[0].content[0].type", "no videos"),
        (content({"type": "video"}), "messages[0].content[0].type", "'video' is not supported"),
        ({"choice": "search"}, "choice", "`choice`: 'search' is not supported"),
    ],
)
def test_what_is_refused_is_named(body: Any, field: str, message: str) -> None:
    error = refusal(body)
    assert error.field == field
    assert message in error.message


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"user": "me"}, "user"),
        ({"colour": []}, "colour"),
        (content({"type": "text", "text": "", "cache": 1}), "messages[0].content[0].cache"),
        (content({"type": "search"}), "messages[0].content[0].type"),
        ({"include": ["usage", "sources"]}, "include[1]"),
        ({"tools": [{"type": "new"}]}, "tools[0].type"),
    ],
)
def test_a_strict_balancer_refuses_what_it_would_ignore(body: Any, field: str) -> None:
    assert refusal(body, is_strict=True).field == field


def test_what_the_types_refuse_is_left_to_them() -> None:
    for body in (
        *(content({"type": "?"}), content({}), content(7), {"messages": 7}, {"n": [1]}),
        *({"choice": "?"}, {"choice": {"type": "?"}}, {"include": ["?", 7, None]}),
    ):
        assert read(body)[0] == body


def test_bodies_that_are_no_objects() -> None:
    for body in (b"", b"{", b"[]", b"1", b'{"a": NaN}', b"\xff"):
        with pytest.raises(InvalidRequest):
            TABLE.given(body)


def test_a_rule_about_an_obeyed_field_is_a_mistake() -> None:
    for path in ("messages[].content", "choice=auto", "choice.type=text"):
        with pytest.raises(ValueError, match=re.escape(path)):
            FieldTable(TypeAdapter(Body), {path: Ignored("?")}).given(b"{}")


class TextParam(TypedDict, total=False):
    type: Required[Literal["text"]]
    text: str
    colour: str


class AudioParam(TypedDict, total=False):
    type: Literal["video", "audio"]
    anything: str


class CallParam(TypedDict, total=False):
    type: Literal["call"]
    input: TextParam


class MessageParam(TypedDict, total=False):
    content: str | Iterable[TextParam | AudioParam | CallParam]


class BodyParams(TypedDict, total=False):
    messages: Required[list[MessageParam]]
    n: int | None
    user: str
    new: str
    choice: Literal["auto", "search", "required"] | TextParam
    betas: list[str]


def test_what_a_librarys_types_have_beyond_a_table() -> None:
    whole = ["messages[].content[].input"]
    assert unlisted(TABLE, BodyParams, whole=whole) == [
        "choice.colour",
        "choice=required",
        "messages[].content[].colour",
        "messages[].content[].type=audio",
        "new",
    ]
    assert "messages[].content[].input: TextParam" in unlisted(TABLE, BodyParams)
    with pytest.raises(ValueError, match="nothing is taken whole at n"):
        unlisted(TABLE, BodyParams, whole=["n"])
