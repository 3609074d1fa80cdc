"""Edits of cells, on the demo model."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import llama_cpp.llama_cpp as llama_cpp
import pytest

from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import (
    Clear,
    Copy,
    Decoded,
    Edit,
    Free,
    NotLoaded,
    Offload,
    OffloadState,
    Outcome,
    Put,
    ReadOut,
    Restore,
    RestoreState,
    Run,
    Step,
)
from bench.small_models import WINDOW
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
    parks = (
        *(Offload(kept, 9, length - 9, 3), Clear(kept, 9), Offload(kept, 4, 5, 2), Clear(kept, 4)),
        *(Offload(kept, 0, 4, 1), Clear(kept)),
    )
    blocks = (Restore(kept, 0, 4, 1), Restore(kept, 4, 5, 2), Restore(kept, 9, length - 9, 3))
    restores = (*blocks, Free((1, 2, 3)))
    engine.execute(Step((Copy(0, kept, length), Clear(0), *parks), (), 0, 0))
    other = Run(SequenceId(2), 0, 0, tokens[::-1], False)
    engine.execute(Step((), (other,), 0, length))
    last = Run(sequence.id, 3, length - 1, tokens[-1:], True)
    for _ in range(2):
        edits = (*restores, Copy(kept, 3, length - 1))
        assert engine.execute(Step(edits, (last,), 0, 1)) == first
        engine.execute(Step((Clear(3), *parks), (), 0, 0))
    engine.execute(Step((Free((1, 2, 3)),), (), 0, 0))
    engine.close(sequence.id)
    wipe(engine)


def test_a_prefix_may_be_in_the_cells_in_part(engine: LlamaEngine) -> None:
    wipe(engine)
    tokens = prompt(engine, "What is a slot?")
    whole = Run(SequenceId(1), 0, 0, tokens, False)
    engine.execute(Step((), (whole,), 0, len(tokens)))
    kept = engine.capacity.num_holders - 1
    park = (Offload(kept, 6, len(tokens) - 6, 1), Clear(kept, 6), Free((1,)))
    edits = (Copy(0, kept, len(tokens)), Clear(0), *park)
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
    keep = (Copy(0, kept, length), Clear(0), Offload(kept, 9, length - 9, 1), Clear(kept, 9))
    # All of the cells, and parts of what is in host memory.
    read = (Offload(kept, 0, 9, 2), ReadOut(2), ReadOut(1, 0, 1), ReadOut(1, 1, length - 11))
    outcome = engine.execute(Step((*keep, *read, Free((1, 2))), (), 0, 0))
    assert isinstance(outcome, Decoded)
    counts, starts = (9, 1, length - 11), (0, 9, 10)
    puts = tuple(Put(block, state) for block, state in enumerate(outcome.saved))
    wipe(engine)
    pieces = enumerate(zip(starts, counts, strict=True))
    restores = tuple(Restore(other, start, count, block) for block, (start, count) in pieces)
    run = Run(sequence.id, 1, length - 1, tokens[-1:], True)
    edits = (*puts, *restores, Free((0, 1, 2)), Copy(other, 1, length - 1))
    assert engine.execute(Step(edits, (run,), 0, 1)) == first
    engine.close(sequence.id)
    wipe(engine)


def test_cells_that_cannot_be_read_are_empty(engine: LlamaEngine) -> None:
    wipe(engine)
    edits = (Offload(7, 0, 3, 1), ReadOut(1), ReadOut(1, 0, 2), Free((1,)))
    outcome = engine.execute(Step(edits, (), 0, 0))
    assert isinstance(outcome, Decoded) and [bytes(one) for one in outcome.saved] == [b"", b""]


def test_a_part_of_what_is_no_state_is_empty(
    engine: LlamaEngine, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = engine.execute(Step((Put(1, b"torn"), ReadOut(1, 0, 2), Free((1,))), (), 0, 0))
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


@pytest.mark.parametrize(("num_left", "is_whole"), [(WINDOW - 1, True), (WINDOW - 2, False)])
def test_a_checkpoint_may_lose_what_no_further_token_looks_back_to(
    small_engine: Callable[[str], LlamaEngine], num_left: int, is_whole: bool
) -> None:
    engine = small_engine("gemma3")
    wipe(engine)
    read_tokens(engine, 0, 0, 300)
    assert engine.execute(Step((Copy(0, 9, 300), Clear(0)), (), 0, 0)) == Decoded(())
    # As if these cells had been given to others.
    llama_cpp.llama_memory_seq_rm(engine._context.memory, 10, 0, 300 - num_left)
    outcome = engine.execute(Step((Copy(9, 1, 300),), (), 0, 0))
    assert outcome == (Decoded(()) if is_whole else NotLoaded((1,)))
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


PARKED = ("gemma3", "gpt-oss off", "qwen35", "granitehybrid", "lfm2", "mamba2")
LENGTH = 150
SCORED = replace(GREEDY, top_log_probs=3)


@pytest.fixture(params=PARKED)
def checkpoint_engine(
    request: pytest.FixtureRequest, small_engine: Callable[[str], LlamaEngine]
) -> Iterator[LlamaEngine]:
    """Slot 0 and holder 4 stand at `LENGTH`."""
    engine = small_engine(request.param)
    wipe(engine)
    read_tokens(engine, 0, 0, LENGTH)
    assert engine.execute(Step((Copy(0, 4, LENGTH),), (), 0, 0)) == Decoded(())
    yield engine
    wipe(engine)


def go_on(engine: LlamaEngine, slot: int, *edits: Edit) -> Outcome:
    """What comes after `LENGTH` tokens and one more in `slot`, after `edits`."""
    sequence = NewSequence(id=SequenceId(1), prompt=Prompt((7,)), max_tokens=None, sampling=SCORED)
    engine.open(sequence)
    run = Run(sequence.id, slot, LENGTH, (7,), True)
    outcome = engine.execute(Step(edits, (run,), 0, 1))
    engine.close(sequence.id)
    return outcome


def check_alike(one: Outcome, other: Outcome) -> None:
    """The same token, and as likely but for rounding: cells may have another order."""
    assert isinstance(one, Decoded) and isinstance(other, Decoded)
    assert one.tokens == other.tokens
    [likely], [expected] = (each.log_probs[SequenceId(1)] for each in (one, other))
    assert [p for _, p in likely.top] == pytest.approx([p for _, p in expected.top], abs=0.02)


def test_a_checkpoint_that_was_parked_is_as_it_was(checkpoint_engine: LlamaEngine) -> None:
    engine = checkpoint_engine
    first = go_on(engine, 0)
    parks = (Offload(4, 0, 64, 1), Offload(4, 64, 64, 2), Offload(4, 128, 22, 3))
    engine.execute(Step((*parks, OffloadState(4, LENGTH, 90, 1)), (), 0, 0))
    wipe(engine)
    read_tokens(engine, 1, 0, 100)
    blocks = (Restore(5, 64, 64, 2), Restore(5, 128, 22, 3))
    state = RestoreState(5, LENGTH, 90, 1)
    whole = (Restore(5, 0, 64, 1), *blocks, state)
    check_alike(go_on(engine, 2, *whole, Copy(5, 2, LENGTH)), first)
    engine.execute(Step((Clear(5), Clear(2)), (), 0, 0))
    shared = (Copy(1, 5, 64, is_bare=True), *blocks, state)
    check_alike(go_on(engine, 3, *shared, Copy(5, 3, LENGTH)), first)
    engine.execute(Step((Free((1, 2, 3, 90)),), (), 0, 0))


def test_a_checkpoint_that_was_saved_is_adopted(checkpoint_engine: LlamaEngine) -> None:
    engine = checkpoint_engine
    first = go_on(engine, 0)
    read_tokens(engine, 0, LENGTH + 1, 20)
    reads = (Offload(0, 0, 100, 1), Offload(0, 100, 50, 2), OffloadState(4, LENGTH, 3, 1))
    edits = (*reads, ReadOut(1), ReadOut(2), ReadOut(3), Free((1, 2, 3)))
    saved = engine.execute(Step(edits, (), 0, 0))
    assert isinstance(saved, Decoded)
    wipe(engine)
    block, tail, state = saved.saved
    adopted = (Put(1, block), Put(2, tail), Put(90, state))
    restored = (Restore(6, 0, 100, 1), Restore(6, 100, 50, 2))
    back = (*adopted, *restored, RestoreState(6, LENGTH, 90, 1), Copy(6, 1, LENGTH))
    check_alike(go_on(engine, 1, *back), first)
    engine.execute(Step((Free((1, 2, 90)),), (), 0, 0))


def test_what_cannot_be_restored_says_so(checkpoint_engine: LlamaEngine) -> None:
    engine = checkpoint_engine
    wipe(engine)
    adopted = (Put(1, b"torn"), Put(90, b"torn"))
    for edit in (Restore(5, 0, 10, 1), RestoreState(5, 10, 90, 1)):
        outcome = engine.execute(Step((*adopted, edit, Copy(5, 1, 10)), (), 0, 0))
        assert isinstance(outcome, NotLoaded) and {5, 1} & {*outcome.holders}
        wipe(engine)
    engine.execute(Step((Free((1, 90)),), (), 0, 0))
