"""What an older peer is not sent."""

from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.shared.since import Since, without_newer
from arriero.shared.strict import STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Colour:
    __pydantic_config__ = STRICT
    name: str
    depth: Annotated[int | None, Since(2)] = None
    gloss: Annotated[int | None, Since(3)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paint:
    __pydantic_config__ = STRICT
    first: Colour
    more: tuple[Colour, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstColour:
    """What version 1 knows of a colour."""

    __pydantic_config__ = STRICT
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Careless:
    size: Annotated[int, Since(2)] = 0


RED = Colour(name="red", depth=1, gloss=2)
PLAIN = Colour(name="plain")


@pytest.mark.parametrize(
    ("version", "red"),
    [(1, Colour(name="red")), (2, Colour(name="red", depth=1)), (3, RED)],
)
def test_it_is_left_out_at_any_depth(version: int, red: Colour) -> None:
    paint = Paint(first=RED, more=(PLAIN, RED), note="wet")
    assert without_newer(paint, version) == Paint(first=red, more=(PLAIN, red), note="wet")


def test_what_has_nothing_newer_is_the_same_object() -> None:
    paint = Paint(first=PLAIN, more=(PLAIN,))
    assert without_newer(paint, 1) is paint
    assert without_newer(RED, 3) is RED


def test_an_older_peer_that_refuses_unknown_fields_takes_the_rest() -> None:
    written, first = TypeAdapter(Colour), TypeAdapter(FirstColour)
    with pytest.raises(ValidationError):
        first.validate_json(written.dump_json(RED, exclude_none=True))
    sent = written.dump_json(without_newer(RED, 1), exclude_none=True)
    assert first.validate_json(sent) == FirstColour(name="red")


def test_a_field_that_cannot_be_left_out_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Careless.size came later, so its default must be None"):
        without_newer(Careless(), 1)
