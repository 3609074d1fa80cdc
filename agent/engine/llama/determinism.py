"""Computes steps in fixed batches, and checks with the model that results do not vary.

llama.cpp does not promise that a token's numbers are independent of other tokens in the batch. So
a test checks it when the model is loaded, on this machine and with this build. The digest of the
test's results identifies the arithmetic: agents with the same digest give the same answers.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from ..model_error import ModelError
from ..sequence import SequenceId
from ..step import Aborted, Failed, NoRoom, Run
from .cells.fixed_batches import fixed_batches
from .context import Context
from .rows import RowReader

Logits = NDArray[np.float32]

_NUM_CHECKED = 60
"""The number of tokens computed in the check: a full batch, and a filled one."""

_NUM_SINGLE = 6
"""The number of these tokens that are computed again one by one."""

_DIGEST_BYTES = 16


class FixedSteps:
    """Computes steps in batches of fixed shapes, so that sequences do not affect each other.

    `num_streams` is the number of streams of the KV cache of `context`.
    """

    def __init__(self, context: Context, reader: RowReader, *, num_streams: int) -> None:
        self._context = context
        self._reader = reader
        self._num_streams = num_streams

    def compute(
        self, runs: Sequence[Run], stream_of: Callable[[int], int]
    ) -> Logits | Aborted | Failed:
        """Return the rows of logits that `runs` request, in order; or the failure.

        No token is chosen before the last batch is computed, because any batch may fail.
        """
        rows = []
        for batch in fixed_batches(
            runs,
            stream_of=stream_of,
            length=self._context.length,
            num_streams=self._num_streams,
        ):
            failure = self._context.decode_fixed(batch)
            if isinstance(failure, NoRoom):
                return Failed("llama.cpp had no room in a stream")  # each has all it can need
            if failure is not None:
                return failure
            if batch.read:
                rows.append(self._reader.copy(batch.read))
        return np.concatenate(rows) if rows else np.empty((0, 0), np.float32)

    def arithmetic(self, tokens: Sequence[int]) -> str:
        """Return a digest of the results for `tokens`, equal for equal arithmetic.

        Raises `ModelError` if results depend on the way they are computed. Clears the context.
        """
        last = self._num_streams - 1
        self._context.clear()
        at_once = self._checked(_chunk(0, 0, tokens))
        if not last:
            self._context.clear()
        num_before = len(tokens) - _NUM_SINGLE
        pieces = [
            self._checked(_chunk(last, start, tokens[start:stop]))
            for start, stop in ((0, 5), (5, num_before))
        ]
        for position in range(num_before, len(tokens)):
            one = _chunk(last, position, tokens[position : position + 1])
            beside = _chunk(0, self._context.length(0), tokens[:1])
            others = (beside,) if last and position % 2 else ()
            pieces.append(self._checked(*others, one)[len(others) :])
        self._context.clear()
        if not np.array_equal(at_once, np.concatenate(pieces)):
            raise ModelError(
                "--deterministic does not work with this model here: llama.cpp computes other "
                "numbers for a token when other tokens are in its batch"
            )
        return blake2b(at_once.tobytes(), digest_size=_DIGEST_BYTES).hexdigest()

    def _checked(self, *runs: Run) -> Logits:
        computed = self.compute(runs, int)
        if isinstance(computed, Aborted | Failed):
            raise ModelError(f"--deterministic could not be checked with this model: {computed}")
        return computed


def checked_tokens(vocab_size: int, context_size: int) -> list[int]:
    """Return the tokens for the check, always the same tokens for a vocabulary."""
    return [(7919 * index + 13) % vocab_size for index in range(min(_NUM_CHECKED, context_size))]


def _chunk(stream: int, start: int, tokens: Sequence[int]) -> Run:
    """Return a run whose rows all need logits."""
    return Run(SequenceId(stream), stream, start, tuple(tokens), True, scored=tuple(tokens[1:]))
