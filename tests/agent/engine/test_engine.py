"""The fake engine and llama.cpp's both are what the worker needs."""

from inspect import signature

import pytest

from arriero.agent.engine.engine import Engine, LoadEngine
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.step import Clear, Copy, Decoded, Edit, NoRoom, Run, Step
from tests.agent.engine.fake_engine import VOCAB_SIZE, FakeEngine, RuleBroken, next_token


def test_both_have_what_the_worker_needs() -> None:
    wanted = {name for name in vars(Engine) if not name.startswith("_")}
    assert {"model", "capacity", "execute"} <= wanted
    real = {*dir(LlamaEngine), *LlamaEngine.__init__.__code__.co_names}
    assert wanted <= real
    assert wanted <= set(dir(FakeEngine()))


def test_both_are_loaded_the_same_way() -> None:
    wanted = list(signature(LoadEngine.__call__).parameters)[1:]
    assert list(signature(load_engine).parameters) == wanted
    assert list(signature(FakeEngine().load).parameters) == wanted


def run(slot: int, start: int, *tokens: int) -> Run:
    return Run(SequenceId(slot), slot, start, tokens, True)


def step(*runs: Run, edits: tuple[Edit, ...] = ()) -> Step:
    return Step(edits, runs, 0, sum(len(run.tokens) for run in runs))


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (step(run(0, 1, 5)), r"position 1 after \[\]"),
        (step(edits=(Copy(0, 1, 3),)), "3 cells copied of 0"),
        (step(edits=(Clear(8),)), "no holder 8"),
        (step(run(0, 0, *[5] * 9), run(1, 0, *[5] * 7)), "16 tokens beside 0 cells"),
        (step(run(2, 0, 5)), "no slot 2"),
        (step(run(0, 0, *range(17))), "17 tokens in a batch of 16"),
        (step(run(0, 0, 5), run(0, 1, 6)), "two runs in one slot"),
        (step(run(0, 0, VOCAB_SIZE)), "outside the vocabulary"),
        (step(run(0, 0)), "an empty run"),
        (Step((), (run(0, 0, 5),), 1, 1), "announced otherwise"),
    ],
)
def test_the_fake_is_as_strict_as_llama_cpp(bad: Step, why: str) -> None:
    with pytest.raises(RuleBroken, match=why):
        FakeEngine(slots=2, num_cells=15).execute(bad)


def test_the_fake_has_no_room_beyond_its_cells() -> None:
    engine = FakeEngine(slots=2, num_cells=4, believed_cells=9)
    assert isinstance(engine.execute(step(run(0, 0, 1, 2, 3))), Decoded)
    assert engine.execute(step(run(1, 0, 1, 2))) == NoRoom()
    assert isinstance(engine.execute(step(run(1, 0, 1, 2), edits=(Clear(0),))), Decoded)


def test_the_fake_shares_cells() -> None:
    engine = FakeEngine(slots=2, num_cells=4)
    engine.execute(step(run(0, 0, 1, 2, 3)))
    engine.execute(step(run(1, 2, 9), edits=(Copy(0, 1, 2), Clear(0, 1))))
    assert (engine.tokens(0), engine.tokens(1)) == ([1], [1, 2, 9])
    assert len(engine.cells) == 3


def test_the_fake_tells_histories_apart() -> None:
    tokens = {next_token((1, 2, last)) for last in range(VOCAB_SIZE)}
    assert len(tokens) > VOCAB_SIZE // 2
