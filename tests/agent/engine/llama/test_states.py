"""States of cells, saved and loaded on the demo model."""

import pytest

from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import (
    Decoded,
    Load,
    NotLoaded,
    Run,
    Step,
)
from tests.agent.engine.llama.running import GREEDY, prompt, wipe


def test_a_state_that_was_saved_is_loaded_instead_of_computed(engine: LlamaEngine) -> None:
    wipe(engine)
    tokens = prompt(engine, "What is a slot?")
    sequence = NewSequence(id=SequenceId(1), prompt=tokens, max_tokens=None, sampling=GREEDY)
    engine.open(sequence)
    first = engine.execute(Step((), (Run(sequence.id, 0, 0, tokens, True),), 0, len(tokens)))
    stored = StoredPrompt(tokens, engine.save(0, len(tokens)))
    wipe(engine)
    last = Run(sequence.id, 3, len(tokens) - 1, tokens[-1:], True)
    assert engine.execute(Step((Load(3, stored, len(tokens) - 1),), (last,), 0, 1)) == first
    engine.close(sequence.id)
    wipe(engine)


@pytest.mark.parametrize("damage", ["torn", "empty", "other tokens"])
def test_a_state_that_is_not_what_it_says_is_not_loaded(engine: LlamaEngine, damage: str) -> None:
    wipe(engine)
    tokens = prompt(engine, "What is a slot?")
    run = Run(SequenceId(1), 0, 0, tokens, False)
    engine.execute(Step((), (run,), 0, len(tokens)))
    state = engine.save(0, len(tokens))
    wipe(engine)
    stored = {
        "torn": StoredPrompt(tokens, state[:-1000]),
        "empty": StoredPrompt(tokens, b""),
        "other tokens": StoredPrompt(tokens[:-1], state),
    }[damage]
    assert engine.execute(Step((Load(0, stored, 3),), (), 0, 0)) == NotLoaded((0,))
    assert engine.execute(Step((), (run,), 0, len(tokens))) == Decoded(()), "the slot is empty"
    wipe(engine)


def test_a_state_is_saved_without_what_was_only_drafted(speculating_engine: LlamaEngine) -> None:
    engine = speculating_engine
    wipe(engine)
    tokens = prompt(engine, "What is a slot?")
    sequence = NewSequence(id=SequenceId(1), prompt=tokens, max_tokens=None, sampling=GREEDY)
    engine.open(sequence)
    run = Run(sequence.id, 0, 0, (*tokens, 7, 7), True, 2)
    outcome = engine.execute(Step((), (run,), 1, len(tokens) - 1, 2))
    assert isinstance(outcome, Decoded)
    assert len(outcome.tokens) == 1
    stored = StoredPrompt(tokens, engine.save(0, len(tokens)))
    wipe(engine)
    last = Run(sequence.id, 3, len(tokens) - 1, tokens[-1:], True)
    load = Load(3, stored, len(tokens) - 1)
    assert engine.execute(Step((load,), (last,), 1, 0)) == outcome
    engine.close(sequence.id)
    wipe(engine)
