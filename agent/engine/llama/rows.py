"""Reading a step's rows of logits: tokens chosen, prompts explained."""

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sampling.filters import Row
from ..sampling.log_probs import LogProbs
from ..sampling.sampler import Sampler
from ..sequence import SequenceId
from ..step import Decoded, Run
from .context import Context


class RowReader:
    """Of `context`: at most `num_rows` a step, each with a logit for every token there is."""

    def __init__(
        self,
        context: Context,
        samplers: Mapping[SequenceId, Sampler],
        *,
        num_rows: int,
        vocab_size: int,
    ) -> None:
        self._context = context
        self._samplers = samplers
        self._rows = _Rows(num_rows, vocab_size)

    def read(self, runs: tuple[Run, ...]) -> Decoded:
        """Choose, and explain prompts, once `runs` were decoded."""
        runs = tuple(run for run in runs if run.samples or run.scored)
        if not runs:
            return Decoded(())
        rows = self._rows.view(self._context.logits)  # in the order of `Batch.fill`
        tokens: list[int] = []
        scores: dict[SequenceId, tuple[LogProbs, ...]] = {}
        end = 0
        # One after the other: what each row needs is over before a thread would have woken up.
        for run in runs:
            if run.scored:
                start, end = end, end + len(run.scored)
                scores[run.id] = self._score(run, rows[start:end])
            if run.samples:
                start, end = end, end + 1 + run.num_drafted
                tokens += self._follow(run, rows[start:end])
        return Decoded(tuple(tokens), self._take_log_probs(runs), scores)

    def _take_log_probs(self, runs: tuple[Run, ...]) -> dict[SequenceId, tuple[LogProbs, ...]]:
        """Of what was just chosen, by sequence; of those that ask for them."""
        taken = {run.id: self._samplers[run.id].take_log_probs() for run in runs if run.samples}
        return {id: log_probs for id, log_probs in taken.items() if log_probs}

    def _score(self, run: Run, rows: Iterable[Row]) -> tuple[LogProbs, ...]:
        score = self._samplers[run.id].score
        return tuple(map(score, rows, run.scored))

    def _follow(self, run: Run, rows: Iterable[Row]) -> Iterator[int]:
        """Choose along the draft, up to the first token that differs, or the one after it."""
        sampler = self._samplers[run.id]
        for row, drafted in zip_longest(rows, run.draft):
            token = sampler.choose(row)
            yield token
            if token != drafted:
                return


class _Rows:
    """llama.cpp's logits where they lie: a row for each output of the last step, in its order.

    The buffer moves only to grow, so one view of it serves many steps. It holds the rows of the
    last step, which may be fewer than the view shows.
    """

    def __init__(self, num_rows: int, vocab_size: int) -> None:
        self._shape = (num_rows, vocab_size)
        self._address = 0
        self._view = np.empty((0, vocab_size), np.float32)

    def view(self, first: Any) -> NDArray[np.float32]:
        address = ctypes.addressof(first.contents)
        if address != self._address:
            self._address = address
            self._view = np.ctypeslib.as_array(first, self._shape)
        return self._view
