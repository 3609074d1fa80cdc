"""Edits of cells, on the demo model."""

from collections.abc import Callable

import pytest

from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.stored_prompt import Piece, StoredPrompt
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import (
    Adopt,
    Clear,
    Copy,
    Decoded,
    Export,
    NotLoaded,
    Park,
    Restore,
    Run,
    Step,
)
from tests.agent.engine.llama.running import GREEDY, prompt, wipe


def test_an_empty_step_is_no_decode(engine: LlamaEngine) -> None:
    assert engine.execute(Step((Clear(0), Clear(1)), (), 0, 0)) == Decoded(())


def test_kept_prefixes_live_beyond_the_numbers_that_batches_use(engine: LlamaEngine) -> None:
    wipe(engine)
    keeper = engine.capacity.num_holders - 1
    tokens = prompt(engine, "What is a slot?")
    sequence = NewSequence(
        id=SequenceId(1), prompt=Prompt(tokens), max_tokens=None, sampling=GREEDY
    )
    engine.open(sequence)
    whole = Run(sequence.id, 0, 0, tokens, True)
    first = engine.execute(Step((), (whole,), 0, len(tokens)))
    last = Run(sequence.id, 1, len(tokens) - 1, tokens[-1:], True)
    edits = (Copy(0, keeper, len(tokens)), Clear(0), Copy(keeper, 1, len(tokens) - 1))
    assert engine.execute(Step((*edits, Clear(keeper)), (last,), 0, 1)) == first
    engine.close(sequence.id)
    wipe(engine)


def test_what_is_parked_comes_back_as_it_was(engine: LlamaEngine) -> None:
    wipe(engine)
    tokens = prompt(engine, "What is a slot?")
    sequence = NewSequence(
        id=SequenceId(1), prompt=Prompt(tokens), max_tokens=None, sampling=GREEDY
    )
    engine.open(sequence)
    first = engine.execute(Step((), (Run(sequence.id, 0, 0, tokens, True),), 0, len(tokens)))
    kept, length = engine.capacity.num_holders - 1, len(tokens)
    parks = (Park(kept, 9, length - 9), Park(kept, 4, 5), Park(kept, 0, 4))
    restores = (Restore(kept, 4), Restore(kept, 5), Restore(kept, length - 9))
    engine.execute(Step((Copy(0, kept, length), Clear(0), *parks), (), 0, 0))
    other = Run(SequenceId(2), 0, 0, tokens[::-1], False)
    engine.execute(Step((), (other,), 0, length))
    last = Run(sequence.id, 3, length - 1, tokens[-1:], True)
    for _ in range(2):
        edits = (*restores, Copy(kept, 3, length - 1))
        assert engine.execute(Step(edits, (last,), 0, 1)) == first
        engine.execute(Step((Clear(3), *parks), (), 0, 0))
    engine.close(sequence.id)
    wipe(engine)


def test_a_prefix_may_be_in_the_cells_in_part(engine: LlamaEngine) -> None:
    wipe(engine)
    tokens = prompt(engine, "What is a slot?")
    whole = Run(SequenceId(1), 0, 0, tokens, False)
    engine.execute(Step((), (whole,), 0, len(tokens)))
    kept = engine.capacity.num_holders - 1
    edits = (Copy(0, kept, len(tokens)), Clear(0), Park(kept, 6, len(tokens) - 6))
    rest = Run(SequenceId(1), 2, 6, tokens[6:], False)
    step = Step((*edits, Copy(kept, 2, 6)), (rest,), 0, len(tokens) - 6)
    assert engine.execute(step) == Decoded(())
    wipe(engine)


def test_what_is_exported_is_adopted_as_it_was_parked_or_not(engine: LlamaEngine) -> None:
    wipe(engine)
    tokens = prompt(engine, "What is a slot?")
    sequence = NewSequence(
        id=SequenceId(1), prompt=Prompt(tokens), max_tokens=None, sampling=GREEDY
    )
    engine.open(sequence)
    first = engine.execute(Step((), (Run(sequence.id, 0, 0, tokens, True),), 0, len(tokens)))
    kept, other, length = engine.capacity.num_holders - 1, 5, len(tokens)
    park = (Copy(0, kept, length), Clear(0), Park(kept, 9, length - 9), Park(kept, 6, 3))
    # In the cells, a part of a piece, and a part of the piece that was parked first.
    exports = (Export(kept, 0, 6), Export(kept, 6, 2), Export(kept, 8, 1))
    last = (Export(kept, 9, length - 10),)
    outcome = engine.execute(Step((*park, *exports, *last), (), 0, 0))
    assert isinstance(outcome, Decoded)
    counts = (6, 2, 1, length - 10)
    pieces = tuple(map(Piece, counts, outcome.saved))
    stored = StoredPrompt(Prompt(tokens[:-1]), pieces)
    wipe(engine)
    restores = tuple(Restore(other, count) for count in counts)
    run = Run(sequence.id, 1, length - 1, tokens[-1:], True)
    edits = (Adopt(other, stored), *restores, Copy(other, 1, length - 1))
    assert engine.execute(Step(edits, (run,), 0, 1)) == first
    engine.close(sequence.id)
    wipe(engine)


def test_an_export_that_cannot_be_read_is_empty(
    engine: LlamaEngine, caplog: pytest.LogCaptureFixture
) -> None:
    wipe(engine)
    outcome = engine.execute(Step((Export(7, 0, 3),), (), 0, 0))
    assert isinstance(outcome, Decoded) and [bytes(one) for one in outcome.saved] == [b""]
    assert "could not be read" in caplog.text


def read_tokens(engine: LlamaEngine, slot: int, start: int, count: int) -> None:
    tokens = tuple(300 + (7 * place) % 1000 for place in range(start, start + count))
    run = Run(SequenceId(1), slot, start, tokens, False)
    assert engine.execute(Step((), (run,), 0, count)) == Decoded(())


@pytest.mark.parametrize("name", ["qwen35", "mamba2"])
def test_a_copy_of_a_recurrent_state_that_has_gone_on_is_no_beginning(
    small_engine: Callable[[str], LlamaEngine], name: str
) -> None:
    engine = small_engine(name)
    wipe(engine)
    read_tokens(engine, 0, 0, 50)
    assert engine.execute(Step((Copy(0, 9, 40),), (), 0, 0)) == NotLoaded((9,))
    wipe(engine)
    read_tokens(engine, 0, 0, 50)
    assert engine.execute(Step((Copy(0, 9, 50), Copy(9, 1, 50)), (), 0, 0)) == Decoded(())
    wipe(engine)


@pytest.mark.parametrize("name", ["qwen35 drafts", "lfm2 drafts"])
def test_as_many_tokens_are_taken_back_as_states_are_kept(
    small_engine: Callable[[str], LlamaEngine], name: str
) -> None:
    engine = small_engine(name)
    wipe(engine)
    read_tokens(engine, 0, 0, 50)
    assert engine.execute(Step((Clear(0, 46),), (), 0, 0)) == Decoded(())
    assert engine.execute(Step((Clear(0, 45),), (), 0, 0)) == NotLoaded((0,)), "once a step"
    wipe(engine)
    read_tokens(engine, 0, 0, 50)
    assert engine.execute(Step((Clear(0, 45),), (), 0, 0)) == NotLoaded((0,)), "four at most"
    wipe(engine)


def test_a_copy_is_no_beginning_where_its_window_was_given_to_others(
    small_engine: Callable[[str], LlamaEngine],
) -> None:
    engine = small_engine("gemma3")
    wipe(engine)
    read_tokens(engine, 1, 0, 300)
    read_tokens(engine, 0, 0, 300)
    read_tokens(engine, 0, 300, 300)
    assert engine.execute(Step((Clear(1),), (), 0, 0)) == Decoded(())
    read_tokens(engine, 3, 0, 250)
    read_tokens(engine, 3, 250, 100)
    edits = (Copy(0, 2, 100), Copy(0, 9, 600))
    assert engine.execute(Step(edits, (), 0, 0)) == NotLoaded((2,)), "where it stands it is whole"
    wipe(engine)


def test_a_window_that_is_parted_comes_back_again_and_again(
    small_engine: Callable[[str], LlamaEngine],
) -> None:
    engine = small_engine("gemma3 off")
    wipe(engine)
    sequence = NewSequence(id=SequenceId(1), prompt=Prompt((7,)), max_tokens=None, sampling=GREEDY)
    engine.open(sequence)
    holders = range(4, engine.capacity.num_holders)
    for number, holder in enumerate(holders):
        read_tokens(engine, 0, 40 * number, 40)
        edits = (Copy(0, holder, 40 * number + 40),)
        assert engine.execute(Step(edits, (), 0, 0)) == Decoded(())
    length = 40 * len(holders)
    last = Run(sequence.id, 0, length, (7,), True)
    first = engine.execute(Step((), (last,), 0, 1))
    for slot in (1, 2, 3):
        last = Run(sequence.id, slot, length, (7,), True)
        edits = (Clear(slot - 1), Copy(holders[-1], slot, length))
        assert engine.execute(Step(edits, (last,), 0, 1)) == first
    engine.close(sequence.id)
    wipe(engine)
