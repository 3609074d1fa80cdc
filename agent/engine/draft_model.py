"""A draft model, as drafters see it; llama.cpp's is `llama.draft_model`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class DraftRun:
    """`tokens` follow the first `start` tokens of `slot`, which are all that it holds.

    With `guesses` the token after them is guessed.
    """

    slot: int
    start: int
    tokens: tuple[int, ...]
    guesses: bool = True


@dataclass(frozen=True, slots=True)
class Guess:
    """The likeliest next token, and how likely the draft model finds it, from 0 to 1."""

    token: int
    chance: float


class DraftFailedError(Exception):
    """The draft model could not compute a batch."""


class DraftModel(Protocol):
    """A small model with the vocabulary of the one that is served, and a KV cache of its own.

    It holds the tokens of `num_slots` texts, in `num_cells` cells together, each text of at most
    `longest` tokens. Belongs to the engine's thread.
    """

    @property
    def num_slots(self) -> int: ...

    @property
    def num_cells(self) -> int: ...

    @property
    def batch_size(self) -> int:
        """Most tokens of one call of `compute`."""

    @property
    def longest(self) -> int: ...

    @property
    def end_tokens(self) -> frozenset[int]: ...

    def compute(self, runs: Sequence[DraftRun]) -> list[Guess]:
        """Guesses, in the order of the runs that ask for one. Raises `DraftFailedError`."""

    def cut(self, slot: int, length: int) -> None:
        """`slot` gives up its tokens but the first `length`."""
