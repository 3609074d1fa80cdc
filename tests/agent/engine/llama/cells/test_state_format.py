"""llama.cpp's states, cut and joined: what comes of it is what llama.cpp itself writes."""

import struct

import numpy as np
import pytest

from arriero.agent.engine.llama.cells.state_format import UnknownStateError, cut, join, parse
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.step import Decoded, Place, Run, Step
from tests.agent.engine.llama.running import prompt, read_out, wipe


def saved(engine: LlamaEngine, *parts: tuple[int, int]) -> list[bytes]:
    """The states of these parts (start, count) of a text, computed in slot 3."""
    wipe(engine)
    places = (Place(3, 3),) if engine.capacity.num_streams else ()
    tokens = prompt(engine, "What is a slot?")
    run = Run(SequenceId(1), 3, 0, tokens, False)
    engine.execute(Step(places, (run,), 0, len(tokens)))
    outcome = engine.execute(Step(read_out(3, *parts), (), 0, 0))
    assert isinstance(outcome, Decoded)
    wipe(engine)
    return [bytes(state) for state in outcome.saved]


def without_numbers(state: bytes) -> bytes:
    """`state` without the numbers of the sequence that it was read from, which nobody reads."""
    states = parse(state)
    positions = states.parts[0].cells.copy()
    positions[:, :, 8:12] = 0
    return positions.tobytes() + b"".join(p.cells.tobytes() for p in states.parts[1:])


def test_pieces_are_the_same_in_both_layouts(
    unified_engine: LlamaEngine, stream_engine: LlamaEngine
) -> None:
    parts = ((0, 7), (7, 5), (12, 2))
    ours, theirs = saved(stream_engine, *parts), saved(unified_engine, *parts)
    assert [len(state) for state in ours] == [len(state) for state in theirs]
    assert [*map(without_numbers, ours)] == [*map(without_numbers, theirs)]
    assert [parse(state).positions for state in ours] == [
        list(range(start, start + count)) for start, count in parts
    ]


def test_joined_pieces_are_what_was_cut(stream_engine: LlamaEngine) -> None:
    whole, *pieces = saved(stream_engine, (0, 14), (0, 7), (7, 5), (12, 2))
    assert bytes(join(pieces, 14, 1)) == whole
    eight = bytes(join(pieces, 14, 8))
    assert bytes(cut(parse(eight), 0, 14)) == whole
    assert len(eight) == len(whole) + 7 * 4
    assert bytes(join(pieces, 9, 1)) == bytes(cut(parse(whole), 0, 9))


def test_pieces_that_do_not_follow_each_other_are_refused(stream_engine: LlamaEngine) -> None:
    first, second = saved(stream_engine, (0, 7), (7, 5))
    with pytest.raises(UnknownStateError, match="do not follow each other"):
        join([second, first], 12, 1)
    with pytest.raises(UnknownStateError, match="do not follow each other"):
        join([first], 8, 1)


@pytest.mark.parametrize("size", [0, 5, 11, 12, 20, 40, 200, -5])
def test_a_torn_state_is_refused(stream_engine: LlamaEngine, size: int) -> None:
    (state,) = saved(stream_engine, (0, 7))
    with pytest.raises(UnknownStateError):
        parse(state[:size])


def test_transposed_values_are_cut_in_each_row() -> None:
    cells = b"".join(struct.pack("<iIi", place, 1, 0) for place in range(3))
    keys = struct.pack("<iQ", 1, 2) + bytes(range(6))
    values = struct.pack("<iII", 1, 1, 2) + bytes(range(10, 16))
    head = b"magicseq" + struct.pack("<II", 1, 3)
    state = head + cells + struct.pack("<II", 1, 1) + keys + values
    states = parse(state)
    assert bytes(cut(states, 0, 3)) == state
    assert parse(cut(states, 1, 2)).parts[-1].cells.tolist() == [[[11], [12]], [[14], [15]]]
    assert bytes(join([cut(states, 0, 1), cut(states, 1, 2)], 3, 1)) == state
    assert np.array_equal(parse(state).parts[1].cells[0], [[0, 1], [2, 3], [4, 5]])
