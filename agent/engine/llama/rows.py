"""Reads a step's rows of logits: chooses tokens, and computes log-probabilities of prompts."""

import ctypes
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sampling.log_probs import LogProbs
from ..sampling.sampler import Sampler
from ..sampling.selection import Row
from ..sampling.together import draw_together
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

        `rows` are the rows of `runs` in the order of `Batch.fill`; by default the rows of the last
        batch. A failure of one sequence is logged, and affects no other sequence.
        """
        runs = tuple(run for run in runs if run.samples or run.scored)
        if not runs:
            return Decoded(())
        read = _Read()
        if rows is None:
            rows = self._rows.view(self._context.logits)
        end = 0
        # On this thread: a row takes less time than waking another one.
        with np.errstate(all="ignore"):  # once a step; see `Sampler`
            for can_join, group in groupby(runs, self._can_join):
                some = [*group]
                start, end = end, end + sum(map(_num_rows, some))
                if can_join and len(some) > 1:
                    self._read_together(some, rows[start:end], read)
                else:
                    self._read_each(some, rows[start:end], read)
        return read.outcome()

    def _can_join(self, run: Run) -> bool:
        """Return whether the run has one row, for which `draw_together` can choose."""
        sampler = self._samplers.get(run.id)
        is_single = run.samples and not run.num_drafted and not run.scored
        return is_single and sampler is not None and sampler.cut is not None

    def _read_together(self, runs: list[Run], rows: NDArray[np.float32], read: "_Read") -> None:
        samplers = [self._samplers[run.id] for run in runs]
        for run, sampler, row in zip(runs, samplers, rows, strict=True):
            try:
                sampler.change(row)
            except Exception:  # the boundary of a sequence: it alone ends
                read.broke(run)
        tokens = self._draw_together(runs, samplers, rows, read)
        for run, sampler, row, token in zip(runs, samplers, rows, tokens, strict=True):
            if run.id in read.broken:
                continue
            try:
                picked = sampler.pick(row) if token is None else token
                read.tokens.append(sampler.take(picked))
            except Exception:  # the boundary of a sequence: it alone ends
                read.broke(run)

    def _draw_together(
        self, runs: list[Run], samplers: list[Sampler], rows: NDArray[np.float32], read: "_Read"
    ) -> list[int | None]:
        """Return the token of each run, or `None` if its sampler has to choose alone."""

        def draw(index: int) -> float:
            try:
                return samplers[index].draw()
            except Exception:  # the boundary of a sequence: it alone ends
                read.broke(runs[index])
                return 0.0

        cuts = [sampler.cut for sampler in samplers if sampler.cut is not None]
        try:
            return draw_together(rows, cuts, draw)
        except Exception:  # the sequence that caused it ends when its sampler chooses alone
            logger.exception("no tokens could be chosen together; each sampler chooses alone")
            return [None] * len(runs)

    def _read_each(self, runs: list[Run], rows: NDArray[np.float32], read: "_Read") -> None:
        end = 0
        for run in runs:
            start, end = end, end + _num_rows(run)
            try:
                self._read_one(run, rows[start:end], read)
            except Exception:  # the boundary of a sequence: it alone ends
                read.broke(run)

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

    def broke(self, run: Run) -> None:
        """Log the current exception. The sequence of `run` gets no token."""
        logger.exception("sequence %d ends: no token could be chosen for it", run.id)
        self.broken.add(run.id)

    def outcome(self) -> Decoded:
        return Decoded(tuple(self.tokens), self.log_probs, self.scores, frozenset(self.broken))


def _num_rows(run: Run) -> int:
    return len(run.scored) + run.samples * (1 + run.num_drafted)


def _chosen(run: Run, rows: Row, sampler: Sampler) -> list[int]:
    """Choose along the draft, up to and including the first token that differs from the draft."""
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
