"""Batches of fixed shapes: whole tiles, whole groups of streams, filling rows that go again."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.llama.cells.fixed_batches import (
    FILLING,
    MOST_ROWS,
    FixedBatch,
    fixed_batches,
)
from arriero.agent.engine.llama.cells.layout import TILE, num_streams_for
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.step import Run


def single(stream: int, start: int, token: int = 7) -> Run:
    return Run(SequenceId(stream), stream, start, (token,), True)


def chunk(stream: int, start: int, count: int, *, samples: bool = False) -> Run:
    return Run(SequenceId(stream), stream, start, tuple(range(1, count + 1)), samples)


def cut(runs: Sequence[Run], lengths: dict[int, int], num_streams: int) -> list[FixedBatch]:
    return list(
        fixed_batches(
            runs,
            stream_of=int,
            length=lambda stream: lengths.get(stream, 0),
            num_streams=num_streams,
        )
    )


def test_a_token_alone_is_a_tile() -> None:
    (batch,) = cut([single(0, 5)], {0: 5}, 1)
    assert batch.tokens == [7, *[FILLING] * 7]
    assert batch.positions == [*range(5, 13)]
    assert batch.outputs == [*range(8)]
    assert batch.read == [0]
    assert batch.fillings == [(0, 6)]


def test_neighbours_without_a_token_are_filled() -> None:
    (batch,) = cut([single(1, 5), single(2, 0, 9)], {0: 3, 1: 5}, 4)
    assert batch.streams == [0, 0, 1, 1, 2, 2, 3, 3]
    assert batch.positions == [3, 4, 5, 6, 0, 1, 0, 1]
    assert batch.tokens == [FILLING, FILLING, 7, FILLING, 9, FILLING, FILLING, FILLING]
    assert batch.read == [2, 4]
    assert batch.fillings == [(0, 3), (1, 6), (2, 1), (3, 0)]


def test_eight_streams_with_a_token_each_need_no_filling() -> None:
    (batch,) = cut([single(stream, stream) for stream in range(8)], {}, 8)
    assert batch.streams == [*range(8)]
    assert not batch.fillings


def test_groups_side_by_side_are_one_batch_and_others_their_own() -> None:
    batches = cut([single(0, 1), single(9, 1), single(24, 1)], {0: 1, 9: 1, 24: 1}, 32)
    assert [batch.streams for batch in batches] == [[*range(16)], [*range(24, 32)]]
    assert [batch.read for batch in batches] == [[0, 9], [0]]
    many = cut([single(stream, 1) for stream in range(64)], {}, 64)
    assert [len(batch.tokens) for batch in many] == [MOST_ROWS, 64 - MOST_ROWS]


def test_a_prompt_is_cut_and_its_end_filled() -> None:
    batches = cut([chunk(2, 100, 101, samples=True)], {2: 100}, 4)
    assert [len(batch.tokens) for batch in batches] == [48, 48, 8]
    assert batches[2].tokens == [97, 98, 99, 100, 101, FILLING, FILLING, FILLING]
    assert [batch.outputs for batch in batches] == [[], [], [*range(8)]]
    assert [batch.read for batch in batches] == [[], [], [4]]
    assert [batch.fillings for batch in batches] == [[], [], [(2, 201)]]


def test_explained_tokens_are_read_in_their_order() -> None:
    run = Run(SequenceId(0), 0, 0, tuple(range(60)), True, scored=(4, 5, 6), first_scored=46)
    first, second = cut([run], {}, 1)
    assert first.outputs == [*range(40, 48)]
    assert first.read == [6, 7]
    assert second.outputs == [*range(16)]
    assert second.read == [0, 11]


@pytest.mark.parametrize(
    ("slots", "count"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (9, 16), (255, 256)]
)
def test_streams_come_in_groups(slots: int, count: int) -> None:
    assert num_streams_for(slots) == count


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[Run], dict[int, int], int]:
    """A step as the planner makes them: streams in their order, each once."""
    num_streams = num_streams_for(draw(st.integers(1, 40)))
    lengths = draw(st.dictionaries(st.integers(0, num_streams - 1), st.integers(0, 200)))
    runs = []
    for stream in draw(st.sets(st.integers(0, num_streams - 1), min_size=1)):
        start = lengths.get(stream, 0)
        count = draw(st.sampled_from([1, 1, 1, 2, 7, 8, 47, 48, 49, 130]))
        runs.append(chunk(stream, start, count, samples=draw(st.booleans())))
    return sorted(runs, key=lambda run: run.slot), lengths, num_streams


@given(steps())
def test_every_token_is_computed_once_in_whole_tiles(
    step: tuple[list[Run], dict[int, int], int],
) -> None:
    runs, lengths, num_streams = step
    cells = {stream: lengths.get(stream, 0) for stream in range(num_streams)}
    computed: dict[int, list[int]] = {}
    read: list[tuple[int, int]] = []
    for batch in fixed_batches(
        runs, stream_of=int, length=cells.__getitem__, num_streams=num_streams
    ):
        assert len(batch.tokens) % TILE == 0 < len(batch.tokens) <= MOST_ROWS
        assert len(batch.outputs) % TILE == 0
        rows_of: dict[int, int] = {}
        for stream, position in zip(batch.streams, batch.positions, strict=True):
            assert position == cells[stream] + rows_of.get(stream, 0), "positions without a gap"
            rows_of[stream] = rows_of.get(stream, 0) + 1
        assert len(set(rows_of.values())) == 1, "all streams alike, so that nothing is split"
        assert len(batch.tokens) > 1
        assert [*rows_of] == [*range(min(rows_of), max(rows_of) + 1)], "streams side by side"
        gone = dict(batch.fillings)
        for token, stream, position in zip(
            batch.tokens, batch.streams, batch.positions, strict=True
        ):
            if position < gone.get(stream, position + 1):
                computed.setdefault(stream, []).append(token)
                cells[stream] = position + 1
        read += [
            (batch.streams[batch.outputs[row]], batch.positions[batch.outputs[row]])
            for row in batch.read
        ]
    assert computed == {run.slot: [*run.tokens] for run in runs}
    assert read == [(run.slot, run.start + len(run.tokens) - 1) for run in runs if run.samples]
