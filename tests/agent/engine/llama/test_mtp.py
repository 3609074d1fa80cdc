"""The layers for MTP of a small model: it guesses what the model itself says."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from arriero.agent.engine.draft_model import DraftRun
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.llama.mtp import WINDOW, HiddenStates, LlamaMtp, has_mtp
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.speculation.model_drafter import ModelDrafter
from arriero.agent.engine.step import Decoded, Run, Step
from bench.small_models import MTP, write
from tests.agent.engine.llama.running import GREEDY, generate, wipe

OPTIONS = LoadOptions(
    slots=4, context_size=512, threads=1, gpu_layers=0, host_cache=2**22, speculate=4
)


@pytest.fixture(scope="module", params=MTP)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(request.param, tmp_path_factory.mktemp("mtp") / "model.gguf", has_mtp=True)


@pytest.fixture(scope="module")
def engine(path: Path) -> Iterator[LlamaEngine]:
    engine = load_engine(path, OPTIONS)
    assert isinstance(engine, LlamaEngine)
    yield engine
    engine.free()


@pytest.fixture
def mtp(engine: LlamaEngine) -> LlamaMtp:
    assert isinstance(engine.draft_model, LlamaMtp)
    for slot in range(engine.draft_model.num_slots):
        engine.draft_model.cut(slot, 0)
    wipe(engine)
    return engine.draft_model


def sequences(num: int) -> list[NewSequence]:
    return [
        NewSequence(
            id=SequenceId(number),
            prompt=Prompt(tuple(range(300 + number, 340 + 20 * number))),
            max_tokens=60,
            sampling=GREEDY,
        )
        for number in range(num)
    ]


@pytest.mark.parametrize("slots", [1, 4])
def test_its_drafts_change_no_word_and_most_are_right(
    engine: LlamaEngine, mtp: LlamaMtp, slots: int
) -> None:
    wanted = sequences(4)
    plain = generate(engine, wanted, slots=slots, context_size=512)[0]
    drafter = ModelDrafter(mtp, clock=lambda: 0.0)
    ended, statistics = generate(
        engine, wanted, slots=slots, context_size=512, max_draft=4, drafter=drafter
    )
    assert ended == plain
    assert statistics.accepted_tokens > 0.5 * statistics.drafted_tokens > 30


def test_of_a_long_prompt_the_end_is_enough(engine: LlamaEngine, mtp: LlamaMtp) -> None:
    long = Prompt(tuple(range(300, 300 + WINDOW + 150)))
    wanted = [replace(sequences(1)[0], prompt=long)]
    plain = generate(engine, wanted, slots=1, context_size=512)[0]
    drafter = ModelDrafter(mtp, clock=lambda: 0.0)
    ended, statistics = generate(
        engine, wanted, slots=1, context_size=512, max_draft=4, drafter=drafter
    )
    assert ended == plain
    assert statistics.accepted_tokens > 0.4 * statistics.drafted_tokens > 5


def test_preempted_sequences_are_drafted_for_again(engine: LlamaEngine, mtp: LlamaMtp) -> None:
    wanted = sequences(4)
    plain = generate(engine, wanted, slots=1, context_size=512)[0]
    drafter = ModelDrafter(mtp, clock=lambda: 0.0)
    ended, statistics = generate(
        engine, wanted, slots=4, context_size=512, num_cells=260, max_draft=4, drafter=drafter
    )
    assert ended == plain
    assert statistics.num_preemptions > 0
    assert statistics.accepted_tokens > 0.4 * statistics.drafted_tokens > 20


def test_it_guesses_from_the_hidden_states_of_the_model(engine: LlamaEngine, mtp: LlamaMtp) -> None:
    """Also for what it has seen nothing of before, and what it drafted itself."""
    one = sequences(1)[0]
    plain = generate(engine, [replace(one, max_tokens=4)], slots=1, context_size=512)[0]
    (expected, _) = plain[one.id]
    tokens = one.prompt.tokens
    engine.open(one)
    wipe(engine)
    outcome = engine.execute(Step((), (Run(one.id, 0, 0, tokens, True),), 0, len(tokens)))
    assert outcome == Decoded(expected[:1])
    text = (*tokens, expected[0])
    (whole,) = mtp.compute((DraftRun(one.id, 0, 0, text),))
    (again,) = mtp.compute((DraftRun(one.id, 1, 0, text),))
    (last,) = mtp.compute((DraftRun(one.id, 2, len(text) - 1, text[-1:]),))
    assert whole.token == again.token == last.token == expected[1]
    (next,) = mtp.compute((DraftRun(one.id, 0, len(text), expected[1:2]),))
    assert next.token == expected[2]
    engine.execute(Step((), (Run(one.id, 0, len(tokens), expected[:2], True, 1),), 1, 0, 1))
    (after,) = mtp.compute((DraftRun(one.id, 0, len(text) + 1, expected[2:3]),))
    assert after.token == expected[3]
    mtp.forget(one.id)
    (unknown,) = mtp.compute((DraftRun(one.id, 3, 0, text),))
    assert whole.chance == pytest.approx(again.chance, rel=1e-4)
    assert whole.chance != pytest.approx(unknown.chance, rel=1e-2)
    mtp.cut(3, 0)
    assert mtp.compute((DraftRun(one.id, 3, 0, text, guesses=False),)) == []
    engine.close(one.id)


def test_hidden_states_are_those_of_consecutive_positions() -> None:
    states = HiddenStates()
    rows = np.arange(10, dtype=np.float32).reshape(10, 1)
    states.put(5, rows[:4])
    assert [states.at(position) for position in (4, 9)] == [None, None]
    assert [states.at(position) for position in (5, 8)] == [0, 3]
    states.put(7, rows[8:])
    assert [states.at(position) for position in (6, 7, 8)] == [1, 8, 9]
    states.put(20, rows[:1])
    assert (states.at(8), states.at(20)) == (None, 0)
    states.put(21, np.ones((WINDOW, 1), np.float32))
    assert (states.at(20), states.at(21), states.end) == (None, 1, 21 + WINDOW)


def test_what_has_no_such_layers_is_loaded_without(
    path: Path, model_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    assert has_mtp(path)
    assert not has_mtp(model_path)
    assert not has_mtp(tmp_path / "missing.gguf")
    assert caplog.messages == []


def test_layers_that_were_not_tried_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    path = write("qwen35", tmp_path / "model.gguf", has_mtp=True)
    reader = gguf.GGUFReader(path, "r+")
    reader.fields["qwen35.nextn_predict_layers"].parts[-1][0] = 2
    del reader
    assert not has_mtp(path)
    (message,) = caplog.messages
    assert "2 layers for MTP, which are not used" in message


def test_without_drafts_they_are_not_loaded(path: Path) -> None:
    engine = load_engine(path, OPTIONS.without_drafts)
    assert isinstance(engine, LlamaEngine)
    assert engine.draft_model is None
    assert engine.model.info.draft_model is None
    engine.free()
