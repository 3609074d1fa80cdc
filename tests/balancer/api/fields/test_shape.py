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
    choice: Literal["auto", "none"] | Text = "auto"
    effort: Literal["low", "high"] | str | None = None
    include: list[Literal["usage"]] | None = None


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
        "choice",
        "choice.type",
        "choice.text",
        "effort",
        "include",
    }


def test_kinds_of_objects_and_the_only_values_have_paths() -> None:
    assert set(shape_of(TypeAdapter(Body)).kinds()) == {
        "messages[].content[].type=text",
        "messages[].content[].type=call",
        "choice=auto",
        "choice=none",
        "choice.type=text",
        "include[]=usage",
    }


def test_what_may_hold_anything_is_open() -> None:
    shape = shape_of(TypeAdapter(Body))
    assert shape.members is not None
    open_ones = {name for name, member in shape.members.items() if member.is_open}
    assert open_ones == {"ids", "tools", "effort"}
