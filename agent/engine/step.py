"""One step of the engine: what is computed together, and what can come of it."""

from dataclasses import dataclass

from .sequence import SequenceId


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive tokens of one sequence: `tokens[0]` lies at position `start` of its slot.

    `samples` asks for the logits of the last one, from which the sequence's next token is chosen.
    """

    id: SequenceId
    slot: int
    start: int
    tokens: tuple[int, ...]
    samples: bool


@dataclass(frozen=True, slots=True)
class Step:
    """First the cells of the slots in `clears` are given up, then `runs` are decoded as one batch.

    Generating sequences come before prompts. A step without runs only clears. `num_generating`
    and `num_prompt_tokens` say what the batch is made of; they add up to its size.
    """

    clears: tuple[int, ...]
    runs: tuple[Run, ...]
    num_generating: int
    num_prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """The step was computed: one token for each run that samples, in the order of the runs."""

    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NoRoom:
    """The cells did not suffice; nothing was computed, the cache is as it was after the clears."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """The step was interrupted; some of its cells may have been written."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The step could not be computed; some of its cells may have been written."""

    reason: str


Outcome = Decoded | NoRoom | Aborted | Failed
"""Whatever it is, the step's clears were carried out."""
