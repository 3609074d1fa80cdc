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
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import (
    Clear,
    Copy,
    Decoded,
    Edit,
    Free,
    NotLoaded,
    Offload,
    Outcome,
    Place,
    Put,
    ReadOut,
    Restore,
    Run,
    Step,
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
    copy = (Place(1, 5), Copy(0, 1, text.length - 1, count=text.length))
    assert text.then(1, *copy) == text.next
    assert text.then(0, Clear(0, text.length - 1)) == text.next


def test_a_stream_goes_from_hand_to_hand(text: Text) -> None:
    edits = (Place(KEPT, 2, 0), Place(0, 3), Place(4, 2, KEPT), Clear(4, text.length - 1))
    assert text.then(4, *edits) == text.next


@pytest.mark.parametrize("size", [5, 1000])
def test_a_stored_prompt_comes_back_from_its_pieces(text: Text, size: int) -> None:
    parts = [range(text.length)[start : start + size] for start in range(0, text.length, size)]
    reads = [
        edit
        for block, part in enumerate(parts)
        for edit in (Offload(0, part.start, len(part), block), ReadOut(block), Free((block,)))
    ]
    outcome = text.engine.execute(Step(tuple(reads), (), 0, 0))
    assert isinstance(outcome, Decoded) and outcome.move_seconds > 0
    puts = [Put(block, state) for block, state in enumerate(outcome.saved)]
    back = [
        Restore(KEPT, part.start, len(part), block)
        for block, part in enumerate(parts)
        if part.start < text.length - 1
    ]
    forget = Free(tuple(range(len(parts))))
    cut = Clear(1, text.length - 1)
    placed = (Place(KEPT, 7), *back, forget, Place(1, 7, KEPT), cut)
    assert text.then(1, *puts, *placed) == text.next


def test_what_comes_back_in_two_steps_is_whole(text: Text) -> None:
    length = text.length - 1
    reads = (Offload(0, 0, 4, 1), Offload(0, 4, length - 4, 2), Place(KEPT, 7))
    text.engine.execute(Step((*reads, Restore(KEPT, 0, 4, 1)), (), 0, 0))
    edits = (Restore(KEPT, 4, length - 4, 2), Free((1, 2)), Place(1, 7, KEPT))
    assert text.then(1, *edits) == text.next


def test_what_is_no_state_is_not_loaded(text: Text) -> None:
    torn = (Put(1, b"nothing of the kind"), Place(KEPT, 7), Restore(KEPT, 0, 5, 1))
    assert text.then(1, *torn, Free((1,)), Place(1, 7, KEPT)) == NotLoaded((KEPT,))
    run = Run(SequenceId(2), 1, 0, text.tokens, False)
    assert text.engine.execute(Step((), (run,), 0, text.length)) == Decoded(()), "it is empty"


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


def test_what_is_handed_out_fits_an_engine_with_one_cache_for_all(
    text: Text, unified_engine: LlamaEngine
) -> None:
    length = text.length - 1
    reads = (Offload(0, 0, 4, 1), Offload(0, 4, length - 4, 2), ReadOut(1), ReadOut(2))
    outcome = text.engine.execute(Step((*reads, Free((1, 2))), (), 0, 0))
    assert isinstance(outcome, Decoded)
    puts = tuple(Put(block, state) for block, state in enumerate(outcome.saved))
    restores = (Restore(6, 0, 4, 0), Restore(6, 4, length - 4, 1), Free((0, 1)))

    engine = unified_engine
    wipe(engine)
    edits = (*puts, *restores, Copy(6, 1, length))
    sequence = NewSequence(id=ID, prompt=Prompt(text.tokens), max_tokens=None, sampling=GREEDY)
    engine.open(sequence)
    run = Run(ID, 1, length, text.tokens[-1:], True)
    assert engine.execute(Step(edits, (run,), 0, 1)) == text.next
    engine.close(ID)
    wipe(engine)
