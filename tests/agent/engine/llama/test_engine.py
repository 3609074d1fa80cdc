"""llama.cpp as the worker's engine, on the demo model."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import llama_cpp.llama_cpp as llama_cpp
import pytest

from arriero.agent.engine.embedding.embedding_plan import Slice
from arriero.agent.engine.llama.draft_model import LlamaDraftModel
from arriero.agent.engine.llama.embedding import LlamaEmbeddingContext
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.llama.model import Model
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Dry, Sampling
from arriero.agent.engine.sequence import ContextShift, NewSequence, SequenceId
from arriero.shared.models.engine_options import SwaFull
from bench.small_models import RECURRENT, write
from demo.conversations import load_conversations
from demo.prompts import compile_template, render_conversation
from tests.agent.engine.llama.running import (
    GREEDY,
    Ended,
    generate,
    prompt,
    sequences,
    tokenize,
)


@pytest.fixture(scope="module", params=["unified", "streams"])
def engine(
    request: pytest.FixtureRequest, unified_engine: LlamaEngine, stream_engine: LlamaEngine
) -> LlamaEngine:
    """In each layout."""
    return stream_engine if request.param == "streams" else unified_engine


def test_facts(engine: LlamaEngine) -> None:
    info = engine.model.info
    assert info.name == "arriero-demo"
    assert info.context_size == 256
    assert engine.capacity.batch_size == 512
    assert engine.capacity.num_cells == 8 * 256
    assert engine.capacity.num_streams == (8 if info.kv_layout == "streams" else 0)
    assert engine.capacity.can_share
    assert engine.model.chat_template is not None


@pytest.fixture(scope="module")
def alone(engine: LlamaEngine) -> Ended:
    """What each sequence gets when it runs alone and nothing is cached."""
    return alone_on(engine)


@cache
def alone_on(engine: LlamaEngine) -> Ended:
    ended: Ended = {}
    for sequence in sequences(engine, GREEDY):
        ended |= generate(engine, [sequence], slots=1)[0]
    return ended


@pytest.mark.parametrize("slots", [8, 3])
def test_a_batch_gives_everyone_the_tokens_of_a_run_alone(
    engine: LlamaEngine, alone: Ended, slots: int
) -> None:
    assert generate(engine, sequences(engine, GREEDY), slots=slots)[0] == alone


def test_steps_that_are_stopped_change_no_word(
    engine: LlamaEngine, alone: Ended, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = sequences(engine, GREEDY)
    assert generate(engine, wanted, slots=8, stops=(0, 1, 4, 9, 20, 21, 40))[0] == alone
    assert not caplog.records


@pytest.mark.parametrize("num_cells", [140, 200])
def test_a_cache_so_small_that_all_are_preempted_changes_no_word(
    unified_engine: LlamaEngine, num_cells: int
) -> None:
    engine = unified_engine
    ended, statistics = generate(engine, sequences(engine, GREEDY), slots=8, num_cells=num_cells)
    assert ended == alone_on(engine)
    assert statistics.num_preemptions > 0


def test_a_shared_prefix_changes_no_word(engine: LlamaEngine) -> None:
    system = "<|im_start|>system\nYou answer questions about Arriero.<|im_end|>\n" * 3
    wanted = [
        replace(one, prompt=Prompt((*tokenize(engine, system), *one.prompt.tokens)))
        for one in sequences(engine, GREEDY)
    ]
    alone: Ended = {}
    for sequence in wanted:
        alone |= generate(engine, [sequence], slots=1)[0]
    ended, statistics = generate(engine, wanted, slots=8)
    assert ended == alone
    common = len(tokenize(engine, system))
    assert statistics.cached_tokens >= common * (len(wanted) - 1)


def test_seeds_hold_in_a_batch(engine: LlamaEngine) -> None:
    wanted = sequences(engine, Sampling(seed=5, temperature=0.7))
    assert generate(engine, wanted, slots=8)[0] == generate(engine, wanted, slots=8)[0]


def test_the_ceiling_of_a_slot_is_never_passed(engine: LlamaEngine) -> None:
    sampling = Sampling(seed=0, temperature=0, ignore_eos=True)
    sequence = NewSequence(
        id=SequenceId(1),
        prompt=Prompt(prompt(engine, "Hello!")),
        max_tokens=None,
        sampling=sampling,
    )
    ((tokens, reason),) = generate(engine, [sequence], slots=1)[0].values()
    assert reason == "length"
    assert len(sequence.prompt) + len(tokens) == 256


def test_a_shift_goes_on_beyond_the_ceiling_and_others_do_not_see_it(
    engine: LlamaEngine, alone: Ended
) -> None:
    assert engine.capacity.can_shift
    wanted = sequences(engine, GREEDY)
    moving = replace(
        wanted[0],
        id=SequenceId(100),
        max_tokens=360,
        sampling=replace(GREEDY, ignore_eos=True),
        shift=ContextShift(num_kept=4, num_discarded=100),
    )
    by_itself = generate(engine, [moving], slots=1)[0]
    ((tokens, reason),) = by_itself.values()
    assert (len(tokens), reason) == (360, "length")
    ended, _ = generate(engine, [moving, *wanted], slots=4)
    assert ended == alone | by_itself


REPEATING = ("tools-0", "dialogs-0", "long-039", "long-040", "json-01")
"""Conversations whose answers repeat themselves, the question or an earlier answer."""


def repeating(engine: LlamaEngine, sampling: Sampling) -> list[NewSequence]:
    template = compile_template(engine.model.chat_template or "")
    conversations = [one for one in load_conversations() if one.id.startswith(REPEATING)]
    return [
        NewSequence(
            id=SequenceId(number),
            prompt=Prompt(tokenize(engine, render_conversation(template, conversation))),
            max_tokens=300,
            sampling=sampling,
            priority=number % 3,
        )
        for number, conversation in enumerate(conversations[::4])
    ]


@pytest.fixture(scope="module")
def plain(speculating_engine: LlamaEngine) -> Ended:
    """What each gets without drafts."""
    engine = speculating_engine
    return generate(engine, repeating(engine, GREEDY), slots=8, context_size=512, max_draft=0)[0]


@pytest.mark.parametrize(("slots", "every"), [(1, 4), (8, 1)])
def test_drafts_change_no_word(
    speculating_engine: LlamaEngine, plain: Ended, slots: int, every: int
) -> None:
    """Alone, each takes as long as eight together: a few of them are enough."""
    engine = speculating_engine
    wanted = repeating(engine, GREEDY)[::every]
    ended, statistics = generate(engine, wanted, slots=slots, context_size=512, max_draft=6)
    assert ended == {one.id: plain[one.id] for one in wanted}
    assert statistics.drafted_tokens > statistics.accepted_tokens > 100 // every
    assert statistics.completion_tokens == sum(len(tokens) for tokens, _ in ended.values())


def test_drafts_change_nothing_where_all_are_preempted(
    speculating_engine: LlamaEngine, plain: Ended
) -> None:
    engine = speculating_engine
    wanted = [one for one in repeating(engine, GREEDY) if len(one.prompt) < 120]
    num_preemptions = num_accepted = 0
    for num_cells in (222, 230):
        ended, statistics = generate(
            engine, wanted, slots=8, context_size=512, max_draft=6, num_cells=num_cells
        )
        assert ended == {one.id: plain[one.id] for one in wanted}
        num_preemptions += statistics.num_preemptions
        num_accepted += statistics.accepted_tokens
    assert num_preemptions > 0
    assert num_accepted > 20


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(seed=7, temperature=1.0),
        Sampling(seed=7, temperature=0.5, repeat_penalty=1.1, frequency_penalty=0.2),
    ],
)
def test_drafts_change_nothing_by_chance(
    speculating_engine: LlamaEngine, sampling: Sampling
) -> None:
    engine = speculating_engine
    wanted = repeating(engine, sampling)[:20]
    ended, statistics = generate(engine, wanted, slots=1, context_size=512, max_draft=6)
    assert ended == generate(engine, wanted, slots=1, context_size=512, max_draft=0)[0]
    assert statistics.accepted_tokens > 5


def test_drafts_change_nothing_beyond_the_ceiling(speculating_engine: LlamaEngine) -> None:
    """A sequence that goes on repeats itself; its window moves, and its last token is in time."""
    engine = speculating_engine
    endless = replace(repeating(engine, GREEDY)[7], sampling=replace(GREEDY, ignore_eos=True))
    for wanted in (
        replace(endless, max_tokens=None),
        replace(endless, max_tokens=600, shift=ContextShift(num_kept=4, num_discarded=100)),
    ):
        ended, statistics = generate(engine, [wanted], slots=1, context_size=512, max_draft=6)
        assert ended == generate(engine, [wanted], slots=1, context_size=512, max_draft=0)[0]
        assert statistics.accepted_tokens > 20


SAMPLINGS = {
    "greedy": GREEDY,
    "seeded": Sampling(seed=17, temperature=1.2),
    "penalties": Sampling(seed=5, temperature=0.9, repeat_penalty=1.3, presence_penalty=0.5),
    "dry": Sampling(seed=9, temperature=0.7, dry=Dry(multiplier=2.0), top_k=0, top_p=0.8),
}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=list(SAMPLINGS))
def test_an_answer_that_goes_on_elsewhere_changes_no_word(
    engine: LlamaEngine, sampling: Sampling
) -> None:
    wanted = [replace(one, max_tokens=24) for one in sequences(engine, sampling)[:4]]
    whole = generate(engine, wanted, slots=4)[0]
    for cut in (1, 2, 7, 23, 24):
        resumed = [replace(one, said=whole[one.id][0][:cut]) for one in wanted]
        rests = generate(engine, resumed, slots=4)[0]
        for one in resumed:
            tokens, reason = rests[one.id]
            assert (one.said + tokens, reason) == whole[one.id], f"cut after {cut}"


@pytest.mark.parametrize("name", RECURRENT)
def test_rows_for_checkpoints_take_half_of_the_memory_for_what_is_evicted(
    name: str, tmp_path: Path
) -> None:
    path = write(name, tmp_path / "model.gguf")
    model = Model(path, LoadOptions(gpu_layers=0))
    row_bytes = model.row_bytes
    model.free()
    for host_cache, num_rows in ((0, 3), (20 * row_bytes, 10), (2**30, 64)):
        options = LoadOptions(
            slots=3, context_size=256, threads=1, gpu_layers=0, host_cache=host_cache
        )
        engine = load_engine(path, options)
        assert isinstance(engine, LlamaEngine)
        assert engine.capacity.num_holders == 3 + num_rows
        assert engine.capacity.state_bytes <= row_bytes + 500, "it takes no more than was thought"
        assert engine.capacity.most_parked == max(0, host_cache - num_rows * row_bytes)
        engine.free()


def test_rows_have_a_state_for_each_token_that_may_be_drafted(tmp_path: Path) -> None:
    path = write("qwen35", tmp_path / "model.gguf")
    model = Model(path, LoadOptions(gpu_layers=0))
    row_bytes = model.row_bytes
    model.free()
    options = LoadOptions(
        slots=3,
        context_size=256,
        threads=1,
        gpu_layers=0,
        host_cache=40 * row_bytes,
        speculate=3,
    )
    engine = load_engine(path, options)
    assert isinstance(engine, LlamaEngine)
    assert engine.capacity.max_draft == 3
    assert engine.capacity.num_holders == 3 + 5
    engine.free()


@pytest.mark.parametrize(
    ("swa_full", "kv_cells", "host_cache", "num_checkpoints"),
    [
        ("on", 8192, 2**30, 252),
        ("off", 1024, 20 * 65536, 10),
        ("off", 1024, 3 * 65536, 3),
        ("off", 8192, 0, 0),
        ("auto", 8192, 2**30, 252),
        ("auto", 8192, 30 * 65536, 15),  # small windows
        ("auto", 8192, 20 * 65536, 252),  # not enough room for them
        ("auto", 1024, 30 * 65536, 252),  # little would be saved
    ],
)
def test_windows_have_caches_of_their_own_where_that_pays(
    swa_full: SwaFull, kv_cells: int, host_cache: int, num_checkpoints: int, tmp_path: Path
) -> None:
    engine = load_engine(
        write("gpt-oss", tmp_path / "model.gguf"),
        LoadOptions(
            slots=3,
            context_size=256,
            threads=1,
            gpu_layers=0,
            kv_cells=kv_cells,
            host_cache=host_cache,
            swa_full=swa_full,
        ),
    )
    assert isinstance(engine, LlamaEngine)
    assert engine.capacity.num_holders == 3 + num_checkpoints
    assert bool(engine.capacity.checkpoint_gap) == bool(num_checkpoints)
    engine.free()


def test_threads_of_all_that_computes_change_between_steps(model_path: Path) -> None:
    options = LoadOptions(
        slots=1, context_size=256, threads=1, gpu_layers=0, draft_model=model_path, speculate=4
    )
    engine = load_engine(model_path, options)
    assert isinstance(engine, LlamaEngine) and isinstance(engine.draft_model, LlamaDraftModel)
    engine.use_threads(2, 3)
    for context in (engine._context, engine.draft_model._context):
        assert threads_of(context.handle) == (2, 3)
    assert engine.model.embedding is not None
    embedding = engine.model.embedding.open(16, ranks=False)
    assert isinstance(embedding, LlamaEmbeddingContext)
    engine.use_threads(1, 2)
    embedding.compute([Slice(0, 0, (300, 301), True)])
    assert threads_of(embedding._handle) == (1, 2)
    embedding.free()
    engine.free()


def test_one_whose_numbers_must_not_change_keeps_its_threads(model_path: Path) -> None:
    options = LoadOptions(
        slots=1, context_size=256, threads=1, gpu_layers=0, deterministic=True, kv_layout="streams"
    )
    engine = load_engine(model_path, options)
    assert isinstance(engine, LlamaEngine)
    engine.use_threads(2, 2)
    assert threads_of(engine._context.handle) == (1, 1)
    engine.free()


def threads_of(context: object) -> tuple[int, int]:
    return llama_cpp.llama_n_threads(context), llama_cpp.llama_n_threads_batch(context)
