"""One sequence's way through the engine: what it consists of, how much of it is computed.

Invariant: `num_computed < len(history)`. There is always a token to compute, the last one at the
least, because the next token is chosen from its logits. A sequence whose cells were given up
(`rewind`) reads its own tokens again like a prompt, and goes on where it was.
"""

from typing import Literal

from ...shared.errors import RequestError
from .sequence import NewSequence, SequenceEnd, SequenceId, SequenceStats


class Progress:
    """`history` is the prompt and what was generated since; `rank` orders those who wait."""

    __slots__ = (
        "_decode_seconds",
        "_limit",
        "_prefill_seconds",
        "_prompt_length",
        "history",
        "id",
        "num_computed",
        "rank",
    )

    def __init__(self, sequence: NewSequence, *, arrival: int, context_size: int) -> None:
        self.id: SequenceId = sequence.id
        self.rank = (-sequence.priority, arrival)
        self.history = list(sequence.prompt)
        self.num_computed = 0
        self._prompt_length = len(sequence.prompt)
        self._limit = _longest(sequence, context_size)
        self._prefill_seconds: float | None = None
        self._decode_seconds: float | None = None

    @property
    def num_pending(self) -> int:
        """Tokens that are not computed yet."""
        return len(self.history) - self.num_computed

    @property
    def is_generating(self) -> bool:
        """Whether a step needs exactly its last token; otherwise it is reading."""
        length = self.num_computed + 1
        return length > self._prompt_length and length == len(self.history)

    @property
    def is_full(self) -> bool:
        """Whether it may have no further token: its own limit, or the slot's ceiling."""
        return len(self.history) >= self._limit

    def next_tokens(self, count: int) -> tuple[int, ...]:
        """The next `count` tokens to compute."""
        return tuple(self.history[self.num_computed : self.num_computed + count])

    def advance(self, count: int, seconds: float) -> None:
        """`count` tokens were computed in a step of `seconds`."""
        if count > self.num_pending:
            raise ValueError(f"{count} tokens computed of {self.num_pending} pending")
        if self.is_generating:
            self._decode_seconds = (self._decode_seconds or 0.0) + seconds
        else:
            self._prefill_seconds = (self._prefill_seconds or 0.0) + seconds
        self.num_computed += count

    def rewind(self) -> None:
        """Its cells are lost: everything is computed again."""
        self.num_computed = 0

    def end(self, reason: Literal["stop", "length"] | RequestError) -> SequenceEnd:
        """The end of it, with its counts so far."""
        stats = SequenceStats(
            prompt_tokens=self._prompt_length,
            cached_tokens=0,
            completion_tokens=len(self.history) - self._prompt_length,
            prefill_seconds=self._prefill_seconds,
            decode_seconds=self._decode_seconds,
        )
        return SequenceEnd(reason, stats)


def _longest(sequence: NewSequence, context_size: int) -> int:
    if sequence.max_tokens is None:
        return context_size
    return min(context_size, len(sequence.prompt) + sequence.max_tokens)
