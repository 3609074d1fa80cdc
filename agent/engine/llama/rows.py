"""Reads a step's rows of logits: chooses tokens, and computes log-probabilities of prompts."""

import ctypes
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sampling.log_probs import LogProbs
from ..sampling.sampler import Sampler
from ..sampling.selection import Row
from ..sequence import SequenceId
from ..step import Decoded, Run
from .context import Context

logger = logging.getLogger(__name__)


class RowReader:
    """Reads the rows of `context`: at most `num_rows` per step, each with all logits."""

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

    def copy(self, numbers: Sequence[int]) -> NDArray[np.float32]:
        """Return copies of rows of the last batch, which the next batch does not overwrite."""
        return self._rows.view(self._context.logits)[list(numbers)]

    def read(self, runs: tuple[Run, ...], rows: NDArray[np.float32] | None = None) -> Decoded:
        """Choose tokens, and compute prompts' log-probabilities, after `runs` were decoded.

        `rows` are their rows in the order of `Batch.fill`; by default those of the last batch. A
        failure of one sequence is logged, and affects no other.
        """
        runs = tuple(run for run in runs if run.samples or run.scored)
        if not runs:
            return Decoded(())
        read = _Read()
        if rows is None:
            rows = self._rows.view(self._context.logits)
        end = 0
        # One after the other: a row takes less time than waking a thread.
        with np.errstate(all="ignore"):  # once a step; see `Sampler`
            for run in runs:
                start, end = end, end + len(run.scored) + run.samples * (1 + run.num_drafted)
                try:
                    self._read_one(run, rows[start:end], read)
                except Exception:  # the boundary of a sequence: it alone ends
                    logger.exception("sequence %d ends: no token could be chosen for it", run.id)
                    read.broken.add(run.id)
        return read.outcome()

    def _read_one(self, run: Run, rows: NDArray[np.float32], read: "_Read") -> None:
        sampler = self._samplers[run.id]
        scores = tuple(map(sampler.score, rows, run.scored)) if run.scored else ()
        chosen = _chosen(run, rows[len(run.scored) :], sampler) if run.samples else []
        log_probs = sampler.take_log_probs()
        read.tokens += chosen
        if scores:
            read.scores[run.id] = scores
        if log_probs:
            read.log_probs[run.id] = log_probs


@dataclass(slots=True)
class _Read:
    """The results read so far."""

    tokens: list[int] = field(default_factory=list)
    log_probs: dict[SequenceId, tuple[LogProbs, ...]] = field(default_factory=dict)
    scores: dict[SequenceId, tuple[LogProbs, ...]] = field(default_factory=dict)
    broken: set[SequenceId] = field(default_factory=set)

    def outcome(self) -> Decoded:
        return Decoded(tuple(self.tokens), self.log_probs, self.scores, frozenset(self.broken))


def _chosen(run: Run, rows: Row, sampler: Sampler) -> list[int]:
    """Choose along the draft, up to and including the first token that differs."""
    chosen = [sampler.choose(rows[0])]
    if not run.num_drafted:
        return chosen
    for row, drafted in zip(rows[1:], run.draft, strict=True):
        if chosen[-1] != drafted:
            break
        chosen.append(sampler.choose(row))
    return chosen


class _Rows:
    """llama.cpp's logits in place: a row for each output of the last step, in order.

    The buffer moves only when it grows, so one view serves many steps. The last step may have fewer
    rows than the view shows.
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
