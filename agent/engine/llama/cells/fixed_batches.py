"""Cuts a step into batches in which a token's numbers depend on nothing but the tokens before it.

llama.cpp chooses its kernels by the shape of what it computes, and kernels differ in the order in
which they add: one row takes others than two, eight rows others than seven, some go in tiles of
four, and from 64 rows of a sequence on attention goes in tiles. Within the shapes that this module
makes, they are always the same:

- A batch has a multiple of `TILE` rows, and at most `MOST_ROWS`. What is missing is filled with
  rows that are removed afterwards.
- Logits are asked for in whole tiles too, since the last layers are computed only for those rows.
- A chunk of a prompt is in batches of its own. The next tokens of generating sequences are computed
  together, a row or a few for each stream of a group of neighbours: those that generate nothing get
  a filling row after what they hold. So no part of a batch is a single row, and llama.cpp does not
  split it.

Sequences are in streams, whose cells lie in the order of their positions; in one cache for all they
would be wherever there was room, and attention would add in that order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ...step import Run
from .layout import TILE

MOST_ROWS = 48
"""A multiple of all tiles, and less than the 64 from which on attention goes in tiles."""

FILLING = 0
"""The token of rows that are removed afterwards."""


@dataclass(frozen=True, slots=True)
class FixedBatch:
    """Rows that llama.cpp computes at once.

    Row for row `tokens`, `positions` and `streams`; `outputs` are the rows with logits. Of these,
    `read` are wanted, by their places among the outputs. `fillings` are the cells to remove
    afterwards: those of a stream from a position on.
    """

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    fillings: list[tuple[int, int]] = field(default_factory=list)

    def add(self, stream: int, start: int, tokens: Sequence[int], num_fillings: int) -> None:
        """Let `tokens` be computed from position `start` on, and fill up after them."""
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
    """The batches of a step's `runs`; their rows to read come in the order of the runs.

    `stream_of` gives the stream of a slot, `length` how many cells a stream has; it is asked when
    the batches before have been computed, and their filling cells removed. `num_streams` is a
    number that `layout.num_streams_for` gives.
    """
    for is_single, some in groupby(runs, key=_is_single):
        if is_single:
            yield from _together(list(some), stream_of, length, num_streams)
        else:
            for run in some:
                yield from _chunks(run, stream_of(run.slot))


def _is_single(run: Run) -> bool:
    """Whether it may share its batch with others."""
    return len(run.tokens) == 1 and not run.scored


def _together(
    runs: list[Run],
    stream_of: Callable[[int], int],
    length: Callable[[int], int],
    num_streams: int,
) -> Iterator[FixedBatch]:
    """A token of each of `runs`, which are in the order of their streams."""
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
    """A chunk of a prompt, from its start on."""
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
