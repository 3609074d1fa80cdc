"""Shapes of bodies, read from types like those that check them."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from arriero.balancer.api.fields.shape import shape_of


@dataclass
class Text:
    type: Literal["text"]
    text: str


@dataclass
class Call:
    type: Literal["call"]
    input: dict[str, Any]


@dataclass
class Options:
    usage: bool = False


@dataclass
class Message:
    content: str | list[Annotated[Text | Call, Field(discriminator="type")]]


@dataclass
class Body:
    messages: list[Message]
    options: Options | None = None
    ids: list[int] | None = None
    tools: list[dict[str, Any]] | None = None


def test_every_member_has_a_path() -> None:
    assert set(shape_of(TypeAdapter(Body)).paths()) == {
        "messages",
        "messages[].content",
        "messages[].content[].type",
        "messages[].content[].text",
        "messages[].content[].input",
        "options",
        "options.usage",
        "ids",
        "tools",
    }


def test_what_may_hold_anything_is_open() -> None:
    shape = shape_of(TypeAdapter(Body))
    assert shape.members is not None
    open_ones = {name for name, member in shape.members.items() if member.is_open}
    assert open_ones == {"ids", "tools"}
