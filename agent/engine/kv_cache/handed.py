"""Parts of a prefix that steps read from the cache, for the disk, other agents or saves."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, assert_never

from ..prompt import Prompt
from ..prompt_store.stored_prompt import Piece, State, StoredPrompt, StoredState
from ..step import Edit, Free, Offload, OffloadState, ReadOut

MOST_CHECKPOINTS = 4
"""Maximum checkpoints of a stored prompt, each with a state.

They are at the end of the answer, at the end of the prompt, and where the last messages begin.
"""


@dataclass(frozen=True, slots=True)
class Handed:
    """A part of a prefix. A step reads the part by its `edits`; one of them is a `ReadOut`.

    The kind `cells` has the next `length` cells of a sequence. The kind `state` has the uncuttable
    state of a sequence at position `length`. The kind `tail` has the last `length` cells before a
    state, after the last whole block.
    """

    kind: Literal["cells", "tail", "state"]
    length: int
    edits: tuple[Edit, ...]


@dataclass(slots=True)
class HandOut:
    """The parts of a prefix that were read so far, from position `start` on.

    `is_lost`: the next part could not be read. If sequences can begin only at checkpoints, the
    last `most_checkpoints` checkpoints are read.
    """

    start: int = 0
    most_checkpoints: int = 1
    pieces: list[Piece] = field(default_factory=list)
    checkpoints: list[StoredState] = field(default_factory=list)
    is_lost: bool = False
    _tail: State = b""

    @property
    def num_read(self) -> int:
        """The position up to which the prefix was read."""
        return self.start + sum(piece.num_tokens for piece in self.pieces)

    def has_all(self, length: int) -> bool:
        """Return whether all of the first `length` tokens were read, or all checkpoints."""
        has_checkpoints = len(self.checkpoints) == self.most_checkpoints
        return has_checkpoints if self.checkpoints else self.num_read == length

    def take(self, parts: Sequence[Handed], states: Sequence[State]) -> None:
        """Add `parts`, each with its part of `states`; an empty state could not be read.

        If one of the parts is a checkpoint, either all parts are added or none.
        """
        if not all(states) and any(part.kind == "state" for part in parts):
            self.is_lost = True
        for part, state in zip(parts, states, strict=True):
            self.is_lost = self.is_lost or not state
            if self.is_lost:
                return
            match part.kind:
                case "cells":
                    self.pieces.append(Piece(part.length, state))
                case "tail":
                    self._tail = state
                case "state":
                    self.checkpoints.append(StoredState(part.length, self._tail, state))
                case _:
                    assert_never(part.kind)

    def stored(self, prompt: Prompt) -> StoredPrompt | None:
        """Return the part of `prompt` that was read, if a sequence can begin with it."""
        if not self.pieces and not self.checkpoints:
            return None
        end, pieces = self.num_read, self.pieces
        if self.checkpoints:
            end = self.checkpoints[-1].length
            ends = accumulate((piece.num_tokens for piece in pieces), initial=self.start)
            pieces = [piece for piece, at in zip(pieces, [*ends][1:], strict=True) if at < end]
        checkpoints = tuple(self.checkpoints)
        return StoredPrompt(prompt.part(0, end), tuple(pieces), self.start, checkpoints)


def cells(
    holder: int, start: int, count: int, block: int, kind: Literal["cells", "tail"] = "cells"
) -> Handed:
    """Return a part of cells, read only to hand it out; `block` must be an unused number."""
    edits = (Offload(holder, start, count, block), ReadOut(block), Free((block,)))
    return Handed(kind, count, edits)


def state(holder: int, length: int, count: int, block: int) -> Handed:
    """Return a part of a state, read only to be handed out; reading it counts as `count` cells."""
    edits = (OffloadState(holder, length, block, count), ReadOut(block), Free((block,)))
    return Handed("state", length, edits)
