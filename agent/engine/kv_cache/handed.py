"""A part of a prefix that a step hands out, for the disk, for other agents, or under a key."""

from dataclasses import dataclass
from typing import Literal

from ..step import Edit, Free, Offload, OffloadState, ReadOut


@dataclass(frozen=True, slots=True)
class Handed:
    """What `edits` hand out; one of them is a `ReadOut`.

    `cells` are so many tokens of all that can be cut. A `state` is what else a sequence has that
    stands at `length`, and a `tail` the cells between the last whole block before it and there.
    """

    kind: Literal["cells", "tail", "state"]
    length: int
    edits: tuple[Edit, ...]


def cells(holder: int, start: int, count: int, block: int, *, is_tail: bool = False) -> Handed:
    """Cells that are read for this alone. No block has the number `block`."""
    edits = (Offload(holder, start, count, block), ReadOut(block), Free((block,)))
    return Handed("tail" if is_tail else "cells", count, edits)


def state(holder: int, length: int, count: int, block: int) -> Handed:
    """A state that is read for this alone, which takes as long as `count` cells."""
    edits = (OffloadState(holder, length, block, count), ReadOut(block), Free((block,)))
    return Handed("state", length, edits)
