"""The same request gets the same answer, bit for bit, on the demo model."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import llama_cpp.llama_cpp as llama_cpp
import numpy as np
import pytest

from arriero.agent.engine.llama.cells.states import States
from arriero.agent.engine.llama.context import Context
from arriero.agent.engine.llama.determinism import FixedSteps, checked_tokens
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.llama.model import Model
from arriero.agent.engine.llama.rows import RowReader
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.log_probs import LogProbs
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import Run
from arriero.shared.reports.model_info import Kernels
from tests.agent.engine.llama.running import GREEDY, generate, sequences, tokenize

SIZE = 512
"""Cells of a stream."""


@pytest.fixture(scope="module")
def model(model_path_of_module: Path) -> Iterator[Model]:
    model = Model(model_path_of_module, LoadOptions(gpu_layers=0), kernels="all")
    yield model
    model.free()


@pytest.fixture(scope="module")
def model_path_of_module() -> Path:
    return Path(__file__).parents[4] / "demo" / "arriero-demo.gguf"


class Streams:
    """A context of its own, in which tokens are computed step by step."""

    def __init__(self, model: Model, num_streams: int, threads: int = 1) -> None:
        self.context = Context(
            model,
            LoadOptions(slots=num_streams, threads=threads, deterministic=True),
            num_cells=num_streams * SIZE,
            num_rows=48,
            num_streams=num_streams,
        )
        self.states = States(self.context)
        reader = RowReader(self.context, {}, num_rows=48, vocab_size=model.vocab.size)
        self.fixed = FixedSteps(self.context, reader, num_streams=num_streams)
        self.context.clear()

    def compute(self, *runs: Run) -> list[bytes]:
        rows = self.fixed.compute(runs, int)
        assert isinstance(rows, np.ndarray)
        return [row.tobytes() for row in rows]


def run(stream: int, start: int, tokens: tuple[int, ...]) -> Run:
    """All of its tokens' logits are wanted."""
    return Run(SequenceId(stream), stream, start, tokens, True, scored=tokens[1:])


@pytest.fixture(scope="module")
def text(model: Model) -> tuple[int, ...]:
    drawn = random.Random(4)
    return tuple(drawn.randrange(5, model.vocab.size) for _ in range(100))


@pytest.fixture(scope="module")
def by_itself(model: Model, text: tuple[int, ...]) -> list[bytes]:
    """The logits of each token of the text, computed one by one with nothing beside."""
    streams = Streams(model, 1)
    rows = []
    for position, token in enumerate(text):
        rows += streams.compute(run(0, position, (token,)))
    streams.context.free()
    return rows


@pytest.mark.parametrize(
    ("num_streams", "threads", "seed"),
    [(1, 1, 1), (2, 1, 2), (4, 2, 3), (8, 1, 4), (16, 2, 5)],
)
def test_logits_do_not_depend_on_neighbours_chunks_threads_or_copies(
    model: Model,
    text: tuple[int, ...],
    by_itself: list[bytes],
    num_streams: int,
    threads: int,
    seed: int,
) -> None:
    """Chunks of any size or single tokens; neighbours that read, generate, come and go; moves."""
    drawn = random.Random(seed)
    streams = Streams(model, num_streams, threads)
    own, done = drawn.randrange(num_streams), 0
    while done < len(text):
        runs = []
        for stream in range(num_streams):
            start = streams.context.length(stream)
            if stream == own:
                count = min(drawn.choice((1, 1, 1, 1, 2, 7, 8, 13, 60)), len(text) - done)
                runs.append(run(stream, done, text[done : done + count]))
            elif drawn.random() < 3 / num_streams and start < SIZE - 80:
                count = drawn.choice((1, 1, 1, 30, 64))
                runs.append(run(stream, start, text[-count:]))
        rows = streams.compute(*runs)
        before = sum(len(one.tokens) for one in runs if one.slot < own)
        count = next(len(one.tokens) for one in runs if one.slot == own)
        assert rows[before : before + count] == by_itself[done : done + count], done
        done += count
        if num_streams > 1 and drawn.random() < 0.2:  # to the place of another stream
            state = streams.states.read(own)
            target = drawn.choice([one for one in range(num_streams) if one != own])
            for stream in (own, target):
                clear(streams, stream)
            assert streams.states.write(target, state)
            own = target
        if drawn.random() < 0.1:  # some of it is computed anew
            done -= drawn.randrange(done)
            clear(streams, own, done)
    streams.context.free()


def clear(streams: Streams, stream: int, start: int = 0) -> None:
    llama_cpp.llama_memory_seq_rm(streams.context.memory, stream, start, -1)


def test_plain_batches_would_differ(model_path_of_module: Path, text: tuple[int, ...]) -> None:
    """Else these tests would show nothing. Kernels for AMX compute batches of any size alike."""
    assert any(
        _batches_differ(model_path_of_module, kernels, text[:1]) for kernels in ("plain", "all")
    )


def _batches_differ(path: Path, kernels: Kernels, tokens: tuple[int, ...]) -> bool:
    """Whether tokens have other logits in a batch as llama.cpp has it than in fixed steps."""
    model = Model(path, LoadOptions(gpu_layers=0), kernels=kernels)
    streams = Streams(model, 2)
    fixed = streams.compute(run(0, 0, tokens))
    clear(streams, 0)
    assert streams.context.decode((run(0, 0, tokens),)) is None
    reader = RowReader(streams.context, {}, num_rows=48, vocab_size=model.vocab.size)
    rows = [row.tobytes() for row in reader.copy(list(range(len(tokens))))]
    streams.context.free()
    model.free()
    return rows != fixed


def test_the_sign_of_the_arithmetic_is_that_of_the_machine_and_not_of_the_sizes(
    model: Model, deterministic_engine: LlamaEngine
) -> None:
    tokens = checked_tokens(model.vocab.size, SIZE)
    signs = set()
    for num_streams, threads in ((1, 1), (4, 2), (16, 1)):
        streams = Streams(model, num_streams, threads)
        signs.add(streams.fixed.arithmetic(tokens))
        assert streams.context.length(0) == 0
        streams.context.free()
    assert signs == {deterministic_engine.model.arithmetic}
    assert deterministic_engine.model.info.deterministic
    assert deterministic_engine.model.info.kv_layout == "streams"


# ---- through the scheduler

Answers = dict[int, tuple[tuple[tuple[int, ...], object], tuple[LogProbs, ...]]]
"""Tokens, why it ended, and log-probabilities of the tokens and of five others, as they are."""

SAMPLED = Sampling(seed=5, temperature=0.9, repeat_penalty=1.2)
SAMPLINGS = [replace(one, top_log_probs=5) for one in (GREEDY, SAMPLED)]


@pytest.fixture(scope="module", params=SAMPLINGS, ids=["greedy", "sampled"])
def sampling(request: pytest.FixtureRequest) -> Sampling:
    chosen = request.param
    assert isinstance(chosen, Sampling)
    return chosen


def answers(
    engine: LlamaEngine,
    wanted: list[NewSequence],
    *,
    slots: int,
    stops: tuple[int, ...] = (),
    num_cached: int = 0,
) -> Answers:
    """`num_cached` tokens at least came out of the cache."""
    log_probs: dict[int, tuple[LogProbs, ...]] = {}
    ended, statistics = generate(engine, wanted, slots=slots, stops=stops, log_probs=log_probs)
    assert statistics.cached_tokens >= num_cached
    return {id: (end, log_probs[id]) for id, end in ended.items()}


def alone(engine: LlamaEngine, wanted: list[NewSequence]) -> Answers:
    found: Answers = {}
    for sequence in wanted:
        found |= answers(engine, [sequence], slots=1)
    return found


def eight(engine: LlamaEngine, sampling: Sampling) -> list[NewSequence]:
    wanted = sequences(engine, sampling)[:8]
    return [replace(one, max_tokens=min(one.max_tokens or 30, 30)) for one in wanted]


@pytest.fixture(scope="module")
def alone_of_eight(deterministic_engine: LlamaEngine, sampling: Sampling) -> Answers:
    return alone(deterministic_engine, eight(deterministic_engine, sampling))


def test_answers_are_equal_beside_others_and_with_a_cached_prefix(
    deterministic_engine: LlamaEngine, sampling: Sampling
) -> None:
    engine = deterministic_engine
    system = tokenize(engine, "<|im_start|>system\nYou answer questions.<|im_end|>\n" * 3)
    wanted = [
        replace(one, prompt=Prompt((*system, *one.prompt.tokens)))
        for one in eight(engine, sampling)
    ]
    expected = alone(engine, wanted)
    assert answers(engine, wanted, slots=8, num_cached=len(system) * 7) == expected
    assert answers(engine, wanted[::-1], slots=3, num_cached=len(system) * 7) == expected


def test_answers_are_equal_though_steps_are_stopped(
    deterministic_engine: LlamaEngine, sampling: Sampling, alone_of_eight: Answers
) -> None:
    engine = deterministic_engine
    wanted = eight(engine, sampling)
    stops = (0, 1, 4, 9, 20, 21, 40)
    assert answers(engine, wanted, slots=8, stops=stops) == alone_of_eight


@pytest.fixture(scope="module")
def other(model_path_of_module: Path) -> Iterator[LlamaEngine]:
    """An engine of another size."""
    options = LoadOptions(slots=3, context_size=300, threads=1, gpu_layers=0, deterministic=True)
    engine = load_engine(model_path_of_module, options)
    assert isinstance(engine, LlamaEngine)
    yield engine
    engine.free()


def test_answers_that_another_engine_began_go_on_equally(
    deterministic_engine: LlamaEngine,
    other: LlamaEngine,
    sampling: Sampling,
    alone_of_eight: Answers,
) -> None:
    """From each of several tokens on, beside others, on an engine of another size."""
    wanted, expected = eight(deterministic_engine, sampling), alone_of_eight
    for num_said in (1, 9):
        moved = [
            replace(one, said=expected[one.id][0][0][:num_said])
            for one in wanted
            if len(expected[one.id][0][0]) > num_said
        ]
        rest = {
            one.id: (
                (expected[one.id][0][0][num_said:], expected[one.id][0][1]),
                expected[one.id][1][num_said:],
            )
            for one in moved
        }
        assert answers(other, moved, slots=3) == rest


def test_prompts_are_explained_equally(deterministic_engine: LlamaEngine) -> None:
    engine = deterministic_engine
    wanted = [replace(one, scores_prompt=True) for one in eight(engine, SAMPLINGS[0])]
    assert answers(engine, wanted, slots=8) == alone(engine, wanted)
