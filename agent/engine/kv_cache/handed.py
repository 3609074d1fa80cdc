"""A part of a prefix that a step hands out, for the disk, for other agents, or under a key."""

from dataclasses import dataclass
from typing import Literal

from ..step import Edit, Free, Offload, OffloadState, ReadOut


@dataclass(frozen=True, slots=True)
class Handed:
    """A part that `edits` hand out; one of them is a `ReadOut`.

    The part `cells` has the next `length` cells of a sequence. A `state` is the state that cannot
    be cut, of a sequence that stands at `length`. A `tail` has the last `length` cells before a
    state, after the last whole block.
    """

    kind: Literal["cells", "tail", "state"]
    length: int
    edits: tuple[Edit, ...]


def cells(holder: int, start: int, count: int, block: int, *, is_tail: bool = False) -> Handed:
    """Cells that are read only to be handed out. No block has the number `block`."""
    edits = (Offload(holder, start, count, block), ReadOut(block), Free((block,)))
    return Handed("tail" if is_tail else "cells", count, edits)


def state(holder: int, length: int, count: int, block: int) -> Handed:
    """A state that is read only to be handed out, which takes as long as `count` cells."""
    edits = (OffloadState(holder, length, block, count), ReadOut(block), Free((block,)))
    return Handed("state", length, edits)
