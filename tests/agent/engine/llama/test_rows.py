"""Rows of logits: prompts explained as llama.cpp would, and the boundary around each sequence."""

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from llama_cpp import Llama

from arriero.agent.engine.grammar.constraint import Constraint, GrammarState, Mask, Submit
from arriero.agent.engine.llama.context import Context
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.rows import RowReader
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.log_probs import LogProbs
from arriero.agent.engine.sampling.sampler import Sampler
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sampling.selection import Row
from arriero.agent.engine.sampling.together import Cut
from arriero.agent.engine.scheduling.scheduler import Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import (
    Clear,
    Decoded,
    Run,
    Step,
)
from arriero.shared.errors import EngineFailed
from tests.agent.engine.llama.running import GREEDY, TEXTS, generate, prompt, sequences, wipe


def test_a_step_without_logits(engine: LlamaEngine) -> None:
    wipe(engine)
    run = Run(SequenceId(1), 0, 0, (5, 6, 7), False)
    assert engine.execute(Step((), (run,), 0, 3)) == Decoded(())
    engine.execute(Step((Clear(0),), (), 0, 0))


def scores(
    engine: LlamaEngine, wanted: list[NewSequence], *, batch_size: int
) -> dict[int, list[LogProbs]]:
    wipe(engine)
    scheduler = Scheduler(
        slots=2,
        context_size=256,
        max_stall=0.5,
        end_tokens=engine.model.vocab.end_tokens,
        capacity=replace(engine.capacity, batch_size=batch_size, num_cells=512),
    )
    found: dict[int, list[LogProbs]] = {sequence.id: [] for sequence in wanted}
    for sequence in wanted:
        engine.open(sequence)
        scheduler.add(sequence)
    while (step := scheduler.plan()) is not None:
        for output in scheduler.commit(step, engine.execute(step), 0.01):
            found[output.id] += output.prompt_log_probs
            if output.end is not None:
                engine.close(output.id)
    return found


@pytest.mark.parametrize("batch_size", [512, 24])
def test_a_prompts_log_probabilities_are_those_of_llama_cpp(
    engine: LlamaEngine, model_path: Path, batch_size: int
) -> None:
    tokens = prompt(engine, TEXTS[4])
    sampling = Sampling(seed=0, temperature=0, top_log_probs=3)
    scored = [
        NewSequence(
            id=SequenceId(number),
            prompt=Prompt(tokens),
            max_tokens=4,
            sampling=sampling,
            scores_prompt=True,
            prefill_only=number == 2,
        )
        for number in (1, 2, 3)  # the third could share all of it with the first
    ]
    plain = Llama(str(model_path), n_ctx=256, logits_all=True, verbose=False, n_threads=1)
    plain.eval(list(tokens))
    logits = np.array(plain.scores[: len(tokens)], np.float64)
    plain.close()
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    for found in scores(engine, scored, batch_size=batch_size).values():
        assert [each.token for each in found] == list(tokens[1:])
        for row, each in zip(expected, found, strict=False):
            assert each.log_prob == pytest.approx(row[each.token], abs=0.02)
            assert [value for _, value in each.top] == pytest.approx(
                sorted(row, reverse=True)[:3], abs=0.02
            )


class Faulty:
    """Stands where a constraint does: all may come, until a third token fails."""

    is_broken = False
    warnings = ()

    def begin(self, submit: Submit) -> GrammarState:
        anything = Mask(np.empty(0, np.intp), is_exclusion=True)
        num_said = 0

        def follow(token: int) -> Mask:
            nonlocal num_said
            num_said += 1
            if num_said == 3:
                raise IndexError("no candidates")
            return anything

        return GrammarState(follow, anything, anything, submit)


@pytest.mark.parametrize(
    ("sampling", "max_draft"), [(GREEDY, 0), (GREEDY, 6), (Sampling(seed=1), 0)]
)
def test_a_sampler_that_raises_ends_its_sequence_and_no_other(
    speculating_engine: LlamaEngine,
    caplog: pytest.LogCaptureFixture,
    sampling: Sampling,
    max_draft: int,
) -> None:
    engine = speculating_engine
    wanted = sequences(engine, sampling)[:4]
    expected = generate(engine, wanted, slots=4, context_size=512, max_draft=max_draft)[0]
    wanted[2] = replace(wanted[2], constraint=cast("Constraint", Faulty()))
    ended, statistics = generate(engine, wanted, slots=4, context_size=512, max_draft=max_draft)
    tokens, reason = ended.pop(2)
    assert tokens == expected.pop(2)[0][: len(tokens)]
    assert len(tokens) <= 3
    assert isinstance(reason, EngineFailed)
    assert "candidates" not in str(reason)
    assert ended == expected
    assert "IndexError: no candidates" in caplog.text
    assert statistics.num_running == 0


class WithoutDraw(Sampler):
    """Its generator fails when rows are drawn together."""

    def draw(self) -> float:
        raise IndexError("no number")


class WithoutFilters(Sampler):
    """Its filters fail, together with others' and alone."""

    cut: Cut | None

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.cut = Cut(cast("int", "many"), np.float32(1), np.float32(0), np.float32(1))

    def pick(self, row: Row) -> int:
        raise IndexError("no filters")


class WithUnusableFilters(WithoutFilters):
    """Its filters fail together with others', and alone it has a token."""

    def pick(self, row: Row) -> int:
        return Sampler.pick(self, row)


@pytest.mark.parametrize(
    ("kind", "broken"), [(WithoutDraw, {1}), (WithoutFilters, {1}), (WithUnusableFilters, set())]
)
def test_rows_that_are_chosen_together_end_their_own_sequence_alone(
    kind: Callable[[NewSequence, Any], Sampler],
    broken: set[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    logits = np.random.default_rng(0).standard_normal((3, 600)).astype(np.float32)
    vocab = SimpleNamespace(size=600, end_tokens=frozenset(), suppressed_tokens=frozenset())

    def sampler(number: int, kind: Callable[[NewSequence, Any], Sampler]) -> Sampler:
        sampling = Sampling(seed=number)
        sequence = NewSequence(
            id=SequenceId(number), prompt=Prompt((0,)), max_tokens=None, sampling=sampling
        )
        return kind(sequence, vocab)

    expected = [sampler(number, Sampler).choose(logits[number].copy()) for number in range(3)]
    samplers = {SequenceId(n): sampler(n, kind if n == 1 else Sampler) for n in range(3)}
    pointer = logits.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    context = cast("Context", SimpleNamespace(logits=pointer))
    reader = RowReader(context, samplers, num_rows=3, vocab_size=600)
    decoded = reader.read(tuple(Run(id, id, 0, (0,), True) for id in samplers))
    assert decoded.broken == broken
    assert [*decoded.tokens] == [expected[n] for n in range(3) if n not in broken]
    assert caplog.text.count("sequence 1 ends") == len(broken)


@pytest.mark.parametrize("logits", [[0.0, np.nan, -np.inf], [np.nan] * 3, [1.0, np.inf, 0.0]])
def test_a_broken_row_gives_a_token_and_no_warning(logits: list[float]) -> None:
    row = np.array(logits, np.float32)
    pointer = row.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    sampling = Sampling(seed=1, temperature=1e-38, mirostat=2)
    sequence = NewSequence(
        id=SequenceId(1), prompt=Prompt((0,)), max_tokens=None, sampling=sampling
    )
    vocab = SimpleNamespace(size=3, end_tokens=frozenset(), suppressed_tokens=frozenset())
    samplers = {sequence.id: Sampler(sequence, vocab)}
    context = cast("Context", SimpleNamespace(logits=pointer))
    reader = RowReader(context, samplers, num_rows=1, vocab_size=3)
    decoded = reader.read((Run(sequence.id, 0, 0, (0,), True),))
    assert not decoded.broken
    [token] = decoded.tokens
    assert 0 <= token < 3
