"""The memory that places share."""

from dataclasses import dataclass, field

from arriero.agent.models.model_file import ModelFile
from arriero.agent.supervision.room import Room
from arriero.shared.models.assignments import HOST, MemoryPart

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


def on(needed: int, **parts: int) -> ModelFile:
    claims = tuple(MemoryPart(device=name, bytes=size) for name, size in parts.items())
    return ModelFile("m", needed, claims=claims)


def test_each_device_and_the_host_hold_what_lies_there() -> None:
    room = Room(130, {HOST: 50, "A": 40, "B": 40})
    left, right = on(30, CPU=10, A=20), on(40, CPU=10, B=30)
    assert room.holds(right, [left, left]), "what lies on `A` is in nobody's way on `B`"
    assert not room.holds(right, [right])
    assert not room.holds(on(30, A=30), [left])
    assert room.holds(on(25, A=25), [on(50, A=15, B=80)]), "`B` is overfull, but not by this one"
    assert not room.holds(on(45, CPU=45), [left])
    assert room.holds(on(30, A=30), [left], takes_what_is_left=True)
    assert not room.holds(on(101, A=101), [left], takes_what_is_left=True), "more than all memory"
    assert room.holds(on(30, A=30), [SMALL]), "all memory counts as one where parts are not known"
