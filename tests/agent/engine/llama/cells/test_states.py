"""States of cells, saved and loaded on the demo model."""

from collections.abc import Callable
from pathlib import Path

import pytest

from arriero.agent.engine.llama.cells.states import States
from arriero.agent.engine.llama.encoder import EncoderEngine
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.stored_prompt import Piece, StoredPrompt
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import Clear, Copy, Decoded, NotLoaded, Run, Step
from tests.agent.engine.llama.recurrent import write_recurrent
from tests.agent.engine.llama.running import GREEDY, prompt, read_out, restored, wipe

TEXT = "What is a slot?"


def saved(engine: LlamaEngine | EncoderEngine, tokens: tuple[int, ...], size: int) -> StoredPrompt:
    """What slot 0 holds of `tokens`, in pieces of at most `size`."""
    parts = [range(len(tokens))[start : start + size] for start in range(0, len(tokens), size)]
    reads = read_out(0, *((part.start, len(part)) for part in parts))
    outcome = engine.execute(Step(reads, (), 0, 0))
    assert isinstance(outcome, Decoded)
    assert outcome.move_seconds > 0
    pieces = zip(parts, outcome.saved, strict=True)
    return StoredPrompt(Prompt(tokens), tuple(Piece(len(part), state) for part, state in pieces))


@pytest.mark.parametrize("size", [5, 1000])
def test_a_state_that_was_saved_comes_back_instead_of_being_computed(
    engine: LlamaEngine, size: int
) -> None:
    wipe(engine)
    tokens = prompt(engine, TEXT)
    sequence = NewSequence(
        id=SequenceId(1), prompt=Prompt(tokens), max_tokens=None, sampling=GREEDY
    )
    engine.open(sequence)
    first = engine.execute(Step((), (Run(sequence.id, 0, 0, tokens, True),), 0, len(tokens)))
    stored = saved(engine, tokens, size)
    assert len(stored.pieces) == -(-len(tokens) // size)
    wipe(engine)
    kept = engine.capacity.num_holders - 1
    last = Run(sequence.id, 3, len(tokens) - 1, tokens[-1:], True)
    edits = (*restored(kept, stored), Copy(kept, 3, len(tokens) - 1))
    assert engine.execute(Step(edits, (last,), 0, 1)) == first
    wipe(engine)
    edits = (*restored(3, stored), Clear(3, len(tokens) - 1))
    assert engine.execute(Step(edits, (last,), 0, 1)) == first, "and at once, straight into a slot"
    engine.close(sequence.id)
    wipe(engine)


@pytest.mark.parametrize("damage", ["torn", "empty", "other tokens", "out of order"])
def test_a_state_that_is_not_what_it_says_is_not_loaded(engine: LlamaEngine, damage: str) -> None:
    wipe(engine)
    tokens = prompt(engine, TEXT)
    run = Run(SequenceId(1), 0, 0, tokens, False)
    engine.execute(Step((), (run,), 0, len(tokens)))
    first, second, *_ = saved(engine, tokens, 8).pieces
    wipe(engine)
    pieces = {
        "torn": (Piece(8, first.state[:-1000]),),
        "empty": (Piece(8, b""),),
        "other tokens": (Piece(7, first.state),),
        "out of order": (second, first),
    }[damage]
    kept = engine.capacity.num_holders - 1
    torn = StoredPrompt(Prompt(tokens), pieces)
    outcome = engine.execute(Step(restored(kept, torn), (), 0, 0))
    assert isinstance(outcome, NotLoaded) and set(outcome.holders) == {kept}
    wipe(engine)
    assert engine.execute(Step((), (run,), 0, len(tokens))) == Decoded(()), "the cells are free"
    wipe(engine)


def test_a_state_is_saved_without_what_was_only_drafted(speculating_engine: LlamaEngine) -> None:
    engine = speculating_engine
    wipe(engine)
    tokens = prompt(engine, TEXT)
    sequence = NewSequence(
        id=SequenceId(1), prompt=Prompt(tokens), max_tokens=None, sampling=GREEDY
    )
    engine.open(sequence)
    run = Run(sequence.id, 0, 0, (*tokens, 7, 7), True, 2)
    outcome = engine.execute(Step((), (run,), 1, len(tokens) - 1, 2))
    assert isinstance(outcome, Decoded)
    assert len(outcome.tokens) == 1
    stored = saved(engine, tokens, 1000)
    wipe(engine)
    last = Run(sequence.id, 3, len(tokens) - 1, tokens[-1:], True)
    edits = (*restored(3, stored), Clear(3, len(tokens) - 1))
    assert engine.execute(Step(edits, (last,), 1, 0)) == outcome
    engine.close(sequence.id)
    wipe(engine)


def test_the_state_of_a_recurrent_model_has_one_size(tmp_path: Path) -> None:
    path = write_recurrent(tmp_path / "recurrent.gguf")
    engine = load_engine(
        path, LoadOptions(slots=2, context_size=256, threads=1, gpu_layers=0, host_cache=2**20)
    )
    assert isinstance(engine, LlamaEngine)
    tokens = (4, 5, 6, 7, 5, 4)
    engine.execute(Step((), (Run(SequenceId(1), 0, 0, tokens, False),), 0, len(tokens)))
    states, apart = States(engine._context), States(engine._context, are_apart=True)
    capacity = engine.capacity
    assert not capacity.can_share
    assert capacity.cell_bytes <= 2, "the heads of blocks"
    assert capacity.state_bytes == apart.size(0)
    assert states.size(0) - apart.size(0) < 200, "there is nothing else"
    engine.free()


def test_a_window_is_read_and_written_apart_from_the_rest(
    small_engine: Callable[[str], LlamaEngine],
) -> None:
    engine = small_engine("gemma3")
    wipe(engine)
    tokens = tuple(range(300, 400))
    engine.execute(Step((), (Run(SequenceId(1), 0, 0, tokens, False),), 0, len(tokens)))
    windows = States(engine._context, are_apart=True)
    window = windows.read(0)
    assert 0 < len(window) < States(engine._context).size(0)
    assert windows.write(0, window)
    assert not windows.write(0, window[: len(window) // 2])
    assert not windows.write(0, b"")
    wipe(engine)
