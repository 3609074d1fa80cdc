"""Edits of streams, on the demo model; and how many computations llama.cpp makes of a batch."""

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp
import llama_cpp.llama_cpp as llama
import pytest

from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.stored_prompt import Piece, StoredPrompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.scheduler import Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import (
    Adopt,
    Clear,
    Copy,
    Decoded,
    Duplicate,
    Edit,
    Export,
    HandOver,
    NotLoaded,
    Outcome,
    Park,
    Place,
    Restore,
    Run,
    Save,
    Step,
    Swap,
)
from tests.agent.engine.llama.running import GREEDY, prompt, wipe

ID = SequenceId(1)


class Text:
    """A text that is computed in slot 0, which has stream 2, and what comes after it."""

    def __init__(self, engine: LlamaEngine) -> None:
        self.engine = engine
        self.tokens = prompt(engine, "What is a slot?")
        self.length = len(self.tokens)
        wipe(engine)
        engine.open(
            NewSequence(id=ID, prompt=Prompt(self.tokens), max_tokens=None, sampling=GREEDY)
        )
        whole = Run(ID, 0, 0, self.tokens, True)
        self.next = engine.execute(Step((Place(0, 2),), (whole,), 0, self.length))

    def then(self, slot: int, *edits: Edit) -> Outcome:
        """After `edits`: the outcome of its last token in `slot`, which has the others."""
        run = Run(ID, slot, self.length - 1, self.tokens[-1:], True)
        return self.engine.execute(Step(edits, (run,), 0, 1))


@pytest.fixture
def text(stream_engine: LlamaEngine) -> Iterator[Text]:
    yield Text(stream_engine)
    stream_engine.close(ID)
    wipe(stream_engine)


KEPT = 20


def test_a_prefix_is_copied_and_its_source_stays(text: Text) -> None:
    copy = (Place(1, 5), Duplicate(0, 1, text.length - 1, text.length))
    assert text.then(1, *copy) == text.next
    assert text.then(0, Clear(0, text.length - 1)) == text.next


def test_a_stream_goes_from_hand_to_hand(text: Text) -> None:
    edits = (HandOver(0, KEPT), Place(0, 3), HandOver(KEPT, 4), Clear(4, text.length - 1))
    assert text.then(4, *edits) == text.next


def test_streams_change_their_contents(text: Text) -> None:
    edits = (Clear(0, text.length - 1), Swap(2, 6, text.length - 1))
    assert text.then(0, *edits) == text.next
    other = Run(SequenceId(2), 5, 0, text.tokens[::-1], False)
    text.engine.execute(Step((Place(5, 1),), (other,), 0, text.length))
    edits = (Clear(0, text.length - 1), Swap(6, 1, 2 * text.length - 1))
    assert text.then(0, *edits) == text.next
    assert text.then(0, Clear(0, text.length - 1), Swap(6, 1, 2 * text.length - 1)) == text.next


def test_what_is_parked_comes_back_as_often_as_it_is_wanted(text: Text) -> None:
    edits = (HandOver(0, KEPT), Park(KEPT, 0, text.length), Place(0, 2))
    text.engine.execute(Step(edits, (), 0, 0))
    for slot in (0, 3):
        back = Duplicate(KEPT, slot, text.length - 1, text.length)
        assert text.then(slot, *([Place(3, 3)] if slot else []), back) == text.next
    text.engine.execute(Step((Clear(KEPT),), (), 0, 0))
    assert text.engine.execute(Step((Clear(0), Clear(3)), (), 0, 0)) == Decoded(())


@pytest.mark.parametrize("size", [5, 1000])
def test_a_stored_prompt_comes_back_from_its_pieces(text: Text, size: int) -> None:
    parts = [range(text.length)[start : start + size] for start in range(0, text.length, size)]
    saves = tuple(Save(ID, 0, part.start, len(part)) for part in parts)
    outcome = text.engine.execute(Step(saves, (), 0, 0))
    assert isinstance(outcome, Decoded) and outcome.move_seconds > 0
    pieces = zip(parts, outcome.saved, strict=True)
    stored = StoredPrompt(
        Prompt(text.tokens), tuple(Piece(len(part), state) for part, state in pieces)
    )
    back = Duplicate(KEPT, 1, text.length - 1, text.length)
    assert text.then(1, Adopt(KEPT, stored), Place(1, 7), back) == text.next


def test_what_is_no_state_is_not_loaded(text: Text) -> None:
    torn = StoredPrompt(Prompt(text.tokens), (Piece(text.length, b"nothing of the kind"),))
    edits = (Adopt(KEPT, torn), Place(1, 7), Duplicate(KEPT, 1, 5, text.length))
    assert text.then(1, *edits) == NotLoaded((KEPT,))
    run = Run(SequenceId(2), 1, 0, text.tokens, False)
    assert text.engine.execute(Step((), (run,), 0, text.length)) == Decoded(()), "it is empty"


def test_an_edit_of_the_other_layout_is_a_mistake(text: Text) -> None:
    for edit in (Copy(0, 1, 3), Restore(KEPT, 3)):
        with pytest.raises(TypeError, match="not with streams"):
            text.engine.execute(Step((edit,), (), 0, 0))


# ---- how many computations a batch is


class Counted:
    """An engine, and how many graphs its context computed since the last `take`."""

    def __init__(self, engine: LlamaEngine, count: list[int]) -> None:
        self.engine = engine
        self._count = count

    def take(self) -> int:
        count, self._count[0] = self._count[0], 0
        return count


def _name_of() -> Callable[[int], bytes]:
    folder = Path(llama_cpp.__file__).parent / "lib"
    function = ctypes.CDLL(str(next(folder.glob("libggml-base.*")))).ggml_get_name
    function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_char_p
    return lambda tensor: bytes(function(tensor))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, model_path: Path) -> Iterator[Counted]:
    """llama.cpp asks before each tensor of a graph whether anybody wants to see it."""
    count = [0]
    name_of = _name_of()

    def ask(tensor: int, is_question: bool, _: Any) -> bool:
        count[0] += is_question and name_of(tensor) == b"result_norm"
        return not is_question

    callback = llama.ggml_backend_sched_eval_callback(ask)
    default_params = llama.llama_context_default_params

    def params() -> Any:
        made = default_params()
        made.cb_eval = callback
        return made

    monkeypatch.setattr(llama, "llama_context_default_params", params)
    engine = load_engine(
        model_path,
        LoadOptions(slots=6, context_size=256, threads=1, gpu_layers=0, kv_layout="streams"),
    )
    yield Counted(engine, count)
    engine.free()


def test_streams_with_a_gap_between_are_two_computations(counted: Counted) -> None:
    tokens = prompt(counted.engine, "Hello!")
    runs = [Run(SequenceId(slot), slot, 0, tokens, False) for slot in range(3)]
    for run in runs:
        counted.engine.execute(Step((), (run,), 0, len(tokens)))
    counted.take()
    following = [replace(run, start=len(tokens), tokens=(5,)) for run in runs]
    counted.engine.execute(Step((), (following[0], following[2]), 2, 0))
    assert counted.take() == 2, "this is what is to be avoided"
    following[1] = replace(following[1], start=len(tokens))
    for each in (0, 2):
        following[each] = replace(following[each], start=len(tokens) + 1)
    counted.engine.execute(Step((), tuple(following), 3, 0))
    assert counted.take() == 1


def test_a_step_that_generates_is_one_computation_at_any_occupation(counted: Counted) -> None:
    """Sequences of different lengths come and go; those that are left move together."""
    engine = counted.engine
    scheduler = Scheduler(
        slots=6,
        context_size=256,
        max_stall=0.5,
        end_tokens=frozenset(),
        capacity=engine.capacity,
    )
    words = ("Hello!", "What is a slot?", "queue", "Why do agents dial in?")
    for number in range(20):
        sequence = NewSequence(
            id=SequenceId(number),
            prompt=Prompt(prompt(engine, words[number % 4])),
            max_tokens=3 + number * 7 % 11 if number < 14 else 20 + 4 * (number * 5 % 6),
            sampling=Sampling(seed=0, temperature=0),
        )
        engine.open(sequence)
        scheduler.add(sequence)
    counted.take()
    occupations = set()
    num_swaps = 0
    while (step := scheduler.plan()) is not None:
        outcome = engine.execute(step)
        scheduler.commit(step, outcome, 0.01)
        num_computed = counted.take()
        num_swaps += sum(isinstance(edit, Swap) for edit in step.edits)
        if step.num_generating:
            assert not step.num_prompt_tokens
            occupations.add(step.num_generating)
            assert num_computed == 1, step
    assert occupations == {1, 2, 3, 4, 5, 6}
    assert num_swaps > 0


@pytest.mark.parametrize("is_parked", [False, True])
def test_what_is_exported_fits_an_engine_with_one_cache_for_all(
    text: Text, unified_engine: LlamaEngine, *, is_parked: bool
) -> None:
    length = text.length - 1
    keep = (HandOver(0, KEPT), *([Park(KEPT, 0, text.length)] if is_parked else []))
    exports = (Export(KEPT, 0, 4), Export(KEPT, 4, length - 4))
    outcome = text.engine.execute(Step((*keep, *exports), (), 0, 0))
    assert isinstance(outcome, Decoded)
    pieces = (Piece(4, outcome.saved[0]), Piece(length - 4, outcome.saved[1]))
    stored = StoredPrompt(Prompt(text.tokens[:-1]), pieces)
    again = (Adopt(21, stored), Place(1, 5), Duplicate(21, 1, length, length))
    assert text.then(1, *again) == text.next
    # And what an engine that adopted it exports is the same.
    adopted = text.engine.execute(Step((Export(21, 2, length - 2),), (), 0, 0))
    assert isinstance(adopted, Decoded) and len(adopted.saved[0]) > 0

    engine = unified_engine
    wipe(engine)
    restores = (Restore(6, 4), Restore(6, length - 4))
    edits = (Adopt(6, stored), *restores, Copy(6, 1, length))
    sequence = NewSequence(id=ID, prompt=Prompt(text.tokens), max_tokens=None, sampling=GREEDY)
    engine.open(sequence)
    run = Run(ID, 1, length, text.tokens[-1:], True)
    assert engine.execute(Step(edits, (run,), 0, 1)) == text.next
    engine.close(ID)
    wipe(engine)
