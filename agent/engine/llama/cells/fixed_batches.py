"""Cuts a step into batches in which a token's numbers depend only on the tokens before it.

llama.cpp chooses its kernels by the shape of a computation, and kernels add in different orders.
One row uses other kernels than two rows, and eight rows others than seven. Some kernels compute
tiles of four, and from 64 rows of a sequence on, attention uses tiles. For the batches made here
the kernels are always the same:

- A batch has a multiple of `TILE` rows, at most `MOST_ROWS`. Missing rows are filled; filling rows
  are removed afterwards.
- Logits are requested in whole tiles too, since the last layers are computed only for those rows.
- A chunk of a prompt has batches of its own. The next tokens of generating sequences are computed
  together, one row or a few for each stream of a group of neighbours. Streams that generate nothing
  get a filling row after their cells. So no part of a batch is a single row, and llama.cpp does not
  split it.

Sequences are in streams, whose cells are in the order of their positions. In one cache for all,
cells would be wherever there is room, and attention would add in that order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ...step import Run
from .layout import TILE

MOST_ROWS = 48
"""Maximum rows of a batch: a multiple of all tiles, below the 64 at which attention uses tiles."""

FILLING = 0
"""The token that fills missing rows."""


@dataclass(frozen=True, slots=True)
class FixedBatch:
    """Rows that llama.cpp computes at once.

    `tokens`, `positions` and `streams` have one entry per row; `outputs` are the rows with logits.
    `read` has the places of the wanted rows among the outputs. `fillings` names the cells to
    remove afterwards: a stream, and the position from which on its cells are removed.
    """

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    fillings: list[tuple[int, int]] = field(default_factory=list)

    def add(self, stream: int, start: int, tokens: Sequence[int], num_fillings: int) -> None:
        """Add `tokens` from position `start` on, followed by filling rows."""
        count = len(tokens) + num_fillings
        self.tokens.extend((*tokens, *(FILLING for _ in range(num_fillings))))
        self.positions.extend(range(start, start + count))
        self.streams.extend(stream for _ in range(count))
        if num_fillings:
            self.fillings.append((stream, start + len(tokens)))


def fixed_batches(
    runs: Sequence[Run],
    *,
    stream_of: Callable[[int], int],
    length: Callable[[int], int],
    num_streams: int,
) -> Iterator[FixedBatch]:
    """Yield the batches of a step's `runs`; rows to read come in the order of the runs.

    `stream_of` returns the stream of a slot. `length` returns the number of a stream's cells. It
    is called after earlier batches were computed and their filling cells removed. `num_streams`
    comes from `layout.num_streams_for`.
    """
    for is_single, some in groupby(runs, key=_is_single):
        if is_single:
            yield from _together(list(some), stream_of, length, num_streams)
        else:
            for run in some:
                yield from _chunks(run, stream_of(run.slot))


def _is_single(run: Run) -> bool:
    """Return whether the run may share its batch with others."""
    return len(run.tokens) == 1 and not run.scored


def _together(
    runs: list[Run],
    stream_of: Callable[[int], int],
    length: Callable[[int], int],
    num_streams: int,
) -> Iterator[FixedBatch]:
    """Yield batches with one token of each of `runs`, which are in the order of their streams."""
    size = min(num_streams, TILE)
    groups = groupby(runs, key=lambda run: stream_of(run.slot) // size)
    batch: FixedBatch | None = None
    last = 0
    for group, some in groups:
        if batch is not None and (group != last + 1 or len(batch.tokens) == MOST_ROWS):
            yield batch
            batch = None
        batch = batch or FixedBatch()
        _add_group(batch, range(group * size, (group + 1) * size), list(some), stream_of, length)
        last = group
    if batch is not None:
        yield batch


def _add_group(
    batch: FixedBatch,
    streams: range,
    runs: list[Run],
    stream_of: Callable[[int], int],
    length: Callable[[int], int],
) -> None:
    num_rows = TILE // len(streams)
    by_stream = {stream_of(run.slot): run for run in runs}
    first = len(batch.tokens)
    for stream in streams:
        if (run := by_stream.get(stream)) is None:
            batch.add(stream, length(stream), (), num_rows)
        else:
            batch.add(stream, run.start, run.tokens, num_rows - 1)
    batch.outputs.extend(range(first, len(batch.tokens)))
    batch.read.extend(
        first + (stream_of(run.slot) - streams.start) * num_rows for run in runs if run.samples
    )


def _chunks(run: Run, stream: int) -> Iterator[FixedBatch]:
    """Yield the batches of a prompt's chunk."""
    wanted = [run.first_scored + index for index in range(len(run.scored))]
    if run.samples:
        wanted.append(len(run.tokens) - 1)
    for first in range(0, len(run.tokens), MOST_ROWS):
        tokens = run.tokens[first : first + MOST_ROWS]
        batch = FixedBatch()
        batch.add(stream, run.start + first, tokens, -len(tokens) % TILE)
        rows = [row - first for row in wanted if 0 <= row - first < len(tokens)]
        tiles = sorted({row // TILE for row in rows})
        batch.outputs.extend(row for tile in tiles for row in range(tile * TILE, (tile + 1) * TILE))
        batch.read.extend(batch.outputs.index(row) for row in rows)
        yield batch
