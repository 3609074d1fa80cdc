"""The port to a draft model, for drafters.

A draft model is a small model (`llama.draft_model`), or layers of the served model (`llama.mtp`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .sequence import SequenceId


@dataclass(frozen=True, slots=True)
class DraftRun:
    """Compute `tokens` of a sequence, whose first `start` tokens `slot` already holds.

    `slot` holds no other tokens. With `guesses` the draft model also guesses the token after
    `tokens`.
    """

    id: SequenceId
    slot: int
    start: int
    tokens: tuple[int, ...]
    guesses: bool = True


@dataclass(frozen=True, slots=True)
class Guess:
    """The likeliest next token, and the draft model's probability for it, from 0 to 1."""

    token: int
    chance: float


class DraftFailedError(Exception):
    """The draft model could not compute a batch."""


class DraftModel(Protocol):
    """Guesses tokens, with the vocabulary of the served model and a KV cache of its own.

    The cache has `num_slots` slots for texts of at most `longest` tokens, and `num_cells` cells in
    all. A draft model belongs to the engine's thread.
    """

    @property
    def num_slots(self) -> int: ...

    @property
    def num_cells(self) -> int: ...

    @property
    def batch_size(self) -> int:
        """Maximum tokens of one call of `compute`."""

    @property
    def longest(self) -> int: ...

    @property
    def end_tokens(self) -> frozenset[int]: ...

    def compute(self, runs: Sequence[DraftRun]) -> list[Guess]:
        """Return a guess for each run with `guesses`, in their order. Raises
        `DraftFailedError`.
        """

    def cut(self, slot: int, length: int) -> None:
        """Drop all tokens of `slot` except the first `length`."""
