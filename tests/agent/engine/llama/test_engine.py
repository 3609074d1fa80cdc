"""llama.cpp as the worker's engine, on the demo model."""

import logging
from pathlib import Path

import pytest

from arriero.agent.engine.llama.engine import LlamaEngine, load_engine
from arriero.agent.engine.loaded_model import ModelError
from arriero.agent.engine.sampling import Sampling
from arriero.agent.engine.scheduler import Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import Decoded, Failed, NoRoom, Run, Step

TEXTS = (
    "What is a slot?",
    "How do I start the balancer, and on which ports does it listen?",
    "Why do agents dial in?",
    "queue",
    "Tell me what happens when an agent is lost while it streams an answer to a client.",
    "What does --max-stall mean?",
    "{",
    "Which errors can a client see? Name three of them.",
    "Hello!",
    "Is there a dashboard?",
    "What is continuous batching?",
    "Can I stop a request?",
)

Ended = dict[int, tuple[tuple[int, ...], object]]


def prompt(engine: LlamaEngine, text: str) -> tuple[int, ...]:
    chat = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    return engine.model.vocab.tokenize(chat, add_special=True, parse_special=True)


def sequences(engine: LlamaEngine, sampling: Sampling) -> list[NewSequence]:
    return [
        NewSequence(
            id=SequenceId(number),
            prompt=prompt(engine, text),
            max_tokens=10 + 7 * number,
            sampling=sampling,
        )
        for number, text in enumerate(TEXTS)
    ]


def generate(engine: LlamaEngine, wanted: list[NewSequence], *, slots: int) -> Ended:
    """Run `wanted` with so many slots; small batches, so that prompts are read in chunks."""
    scheduler = Scheduler(
        slots=slots,
        context_size=256,
        batch_size=24,
        max_stall=0.5,
        end_tokens=engine.model.vocab.end_tokens,
    )
    for sequence in wanted:
        engine.open(sequence)
        scheduler.add(sequence)
    tokens: dict[int, tuple[int, ...]] = {}
    ended: Ended = {}
    while (step := scheduler.plan()) is not None:
        for output in scheduler.commit(step, engine.execute(step), 0.01):
            tokens[output.id] = tokens.get(output.id, ()) + output.tokens
            if output.end is not None:
                engine.close(output.id)
                ended[output.id] = (tokens[output.id], output.end.reason)
    return ended


def test_facts(engine: LlamaEngine) -> None:
    info = engine.model.info
    assert info.name == "arriero-demo"
    assert info.context_size == 256
    assert engine.batch_size == 2048
    assert engine.model.chat_template is not None


def test_a_batch_gives_everyone_the_tokens_of_a_run_alone(engine: LlamaEngine) -> None:
    wanted = sequences(engine, Sampling(seed=0, temperature=0))
    alone: Ended = {}
    for sequence in wanted:
        alone |= generate(engine, [sequence], slots=1)
    assert generate(engine, wanted, slots=8) == alone
    assert generate(engine, wanted, slots=3) == alone


def test_seeds_hold_in_a_batch(engine: LlamaEngine) -> None:
    wanted = sequences(engine, Sampling(seed=5, temperature=0.7))
    assert generate(engine, wanted, slots=8) == generate(engine, wanted, slots=8)


def test_the_ceiling_of_a_slot_is_never_passed(engine: LlamaEngine) -> None:
    sampling = Sampling(seed=0, temperature=0, ignore_eos=True)
    sequence = NewSequence(
        id=SequenceId(1),
        prompt=prompt(engine, "Hello!"),
        max_tokens=None,
        sampling=sampling,
    )
    ((tokens, reason),) = generate(engine, [sequence], slots=1).values()
    assert reason == "length"
    assert len(sequence.prompt) + len(tokens) == 256


def test_an_empty_step_is_no_decode(engine: LlamaEngine) -> None:
    assert engine.execute(Step((0, 1), (), 0, 0)) == Decoded(())


def test_a_step_without_logits(engine: LlamaEngine) -> None:
    run = Run(SequenceId(1), 0, 0, (5, 6, 7), False)
    assert engine.execute(Step((), (run,), 0, 3)) == Decoded(())
    engine.execute(Step((0,), (), 0, 0))


def test_a_gap_in_the_positions_is_a_failed_step(engine: LlamaEngine) -> None:
    run = Run(SequenceId(1), 0, 0, (5,), False)
    assert engine.execute(Step((), (run,), 0, 1)) == Decoded(())
    gap = Run(SequenceId(1), 0, 7, (5,), False)
    outcome = engine.execute(Step((), (gap,), 0, 1))
    assert outcome == Failed("llama.cpp refused the batch as invalid")
    engine.execute(Step((0,), (), 0, 0))


def test_more_than_the_cells_is_no_room(model_path: Path) -> None:
    small = load_engine(model_path, slots=1, context_size=256, threads=1, gpu_layers=0)
    tokens = tuple([5] * 200)
    full = Step((), (Run(SequenceId(1), 0, 0, tokens, False),), 0, 200)
    assert small.execute(full) == Decoded(())
    more = Step((), (Run(SequenceId(1), 0, 200, tokens[:57], False),), 0, 57)
    assert small.execute(more) == NoRoom()
    small.free()


def test_too_many_slots_are_refused(model_path: Path) -> None:
    with pytest.raises(ModelError, match=r"at most 256 sequences at once: lower --slots 257"):
        load_engine(model_path, slots=257, context_size=256, threads=1, gpu_layers=0)


def test_a_context_beyond_the_training_is_warned_of(
    model_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    load_engine(model_path, slots=1, context_size=100_000, threads=1, gpu_layers=0).free()
    (message,) = caplog.messages
    assert message.startswith("--context-size 100000 is more than the")


def test_loading_says_nothing_when_all_is_well(
    model_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    load_engine(model_path, slots=4, context_size=512, threads=1, gpu_layers=0).free()
    assert caplog.messages == []
