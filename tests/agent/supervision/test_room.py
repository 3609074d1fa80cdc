"""The memory that places share."""

from dataclasses import dataclass, field

from arriero.agent.models.model_file import ModelFile
from arriero.agent.supervision.room import Room

SMALL, LARGE, UNKNOWN = ModelFile("s", 40), ModelFile("l", 90), ModelFile("u")


@dataclass(eq=False)
class FakePlace:
    files: list[ModelFile | None] = field(default_factory=list)
    is_loading: bool = False


def test_a_place_sees_what_others_have() -> None:
    room, one, other = Room(100), FakePlace([SMALL]), FakePlace([LARGE], is_loading=True)
    room.enter(one)
    room.enter(other)
    assert (room.beside(one), room.beside(other)) == ([LARGE], [SMALL])
    assert room.is_loading_beside(one) and not room.is_loading_beside(other)
    room.leave(other)
    assert room.beside(one) == [] and not room.is_loading_beside(one)


def test_it_holds_what_fits_together_and_anything_alone() -> None:
    room = Room(100)
    assert room.holds(SMALL, [SMALL]) and not room.holds(SMALL, [LARGE])
    assert room.holds(ModelFile("giant", 1000), []) and room.holds(UNKNOWN, [])
    assert not room.holds(UNKNOWN, [SMALL]) and not room.holds(SMALL, [UNKNOWN])
    assert not room.holds(SMALL, [None]), "a model of the agent's own, of unknown size"
    assert not Room(0).holds(SMALL, [SMALL]), "unknown memory: one at a time"
