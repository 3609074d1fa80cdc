"""The context: what llama.cpp refuses, and what does not fit."""

from pathlib import Path

from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.step import (
    Clear,
    Decoded,
    Failed,
    NoRoom,
    Run,
    Step,
)
from tests.agent.engine.llama.running import wipe


def test_a_gap_in_the_positions_is_a_failed_step(engine: LlamaEngine) -> None:
    wipe(engine)
    run = Run(SequenceId(1), 0, 0, (5,), False)
    assert engine.execute(Step((), (run,), 0, 1)) == Decoded(())
    gap = Run(SequenceId(1), 0, 7, (5,), False)
    outcome = engine.execute(Step((), (gap,), 0, 1))
    assert outcome == Failed("llama.cpp refused the batch as invalid")
    engine.execute(Step((Clear(0),), (), 0, 0))


def test_more_than_the_cells_is_no_room(model_path: Path) -> None:
    small = load_engine(model_path, LoadOptions(slots=1, context_size=256, threads=1, gpu_layers=0))
    tokens = tuple([5] * 200)
    full = Step((), (Run(SequenceId(1), 0, 0, tokens, False),), 0, 200)
    assert small.execute(full) == Decoded(())
    more = Step((), (Run(SequenceId(1), 0, 200, tokens[:57], False),), 0, 57)
    assert small.execute(more) == NoRoom()
    small.free()
