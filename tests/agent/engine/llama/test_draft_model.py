"""A draft model beside the demo model: the text is the same, token by token."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import gguf
import pytest

from arriero.agent.engine.draft_model import DraftFailedError, DraftRun
from arriero.agent.engine.llama.draft_model import LlamaDraftModel, check_pair, load_draft_model
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.llama.model import Model
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.model_error import ModelError
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import ContextShift, NewSequence, SequenceId
from arriero.agent.engine.speculation.drafter import JointDrafter
from arriero.agent.engine.speculation.model_drafter import ModelDrafter
from arriero.agent.engine.speculation.prompt_lookup import LookupDrafter
from bench.small_models import write
from demo.conversations import DRAFT
from tests.agent.engine.llama.recurrent import write_recurrent
from tests.agent.engine.llama.running import GREEDY, Ended, generate, prompt, sequences

CONTEXT_SIZE = 512


@pytest.fixture(scope="module")
def draft_model(model_path_of_module: Path) -> Iterator[LlamaDraftModel]:
    target = Model(model_path_of_module, LoadOptions(gpu_layers=0))
    model = load_draft_model(
        DRAFT,
        target,
        LoadOptions(slots=4, context_size=CONTEXT_SIZE, threads=1, gpu_layers=0),
        num_cells=4 * CONTEXT_SIZE,
    )
    target.free()
    yield model
    model.free()


@pytest.fixture(scope="module")
def model_path_of_module(speculating_engine: LlamaEngine) -> Path:
    return Path(speculating_engine._model.path)


@pytest.fixture
def drafter(draft_model: LlamaDraftModel) -> ModelDrafter:
    """Whose drafts cost nothing, so that it drafts all it can."""
    for slot in range(draft_model.num_slots):
        draft_model.cut(slot, 0)
    return ModelDrafter(draft_model, clock=lambda: 0.0)


@pytest.fixture(scope="module")
def plain(speculating_engine: LlamaEngine) -> Ended:
    """What each gets without drafts."""
    engine = speculating_engine
    return generate(engine, sequences(engine, GREEDY), slots=4, context_size=CONTEXT_SIZE)[0]


def test_it_guesses_as_the_demo_model_goes_on(
    speculating_engine: LlamaEngine, draft_model: LlamaDraftModel, drafter: ModelDrafter
) -> None:
    tokens = prompt(speculating_engine, "What is a slot?")
    guesses = draft_model.compute(
        (DraftRun(SequenceId(1), 0, 0, tokens), DraftRun(SequenceId(1), 1, 0, tokens[:5]))
    )
    assert len(guesses) == 2
    assert all(0 < guess.chance <= 1 for guess in guesses)
    (again,) = draft_model.compute((DraftRun(SequenceId(1), 2, 0, tokens),))
    assert again.token == guesses[0].token
    draft_model.cut(0, len(tokens) - 1)
    (cut,) = draft_model.compute((DraftRun(SequenceId(1), 0, len(tokens) - 1, tokens[-1:]),))
    assert cut.token == again.token
    assert draft_model.compute((DraftRun(SequenceId(1), 1, 5, tokens[5:8], guesses=False),)) == []


def test_what_goes_on_nowhere_fails(draft_model: LlamaDraftModel, drafter: ModelDrafter) -> None:
    draft_model.compute((DraftRun(SequenceId(1), 0, 0, (1, 2, 3)),))
    with pytest.raises(DraftFailedError, match=r"draft\.gguf failed"):
        draft_model.compute((DraftRun(SequenceId(1), 0, 1, (1,)),))


@pytest.mark.parametrize(("slots", "with_lookup"), [(1, True), (4, False)])
def test_drafts_of_a_model_change_no_word(
    speculating_engine: LlamaEngine,
    drafter: ModelDrafter,
    plain: Ended,
    caplog: pytest.LogCaptureFixture,
    *,
    slots: int,
    with_lookup: bool,
) -> None:
    """Twelve sequences come and go."""
    engine = speculating_engine
    ended, statistics = generate(
        engine,
        sequences(engine, GREEDY),
        slots=slots,
        context_size=CONTEXT_SIZE,
        max_draft=6,
        drafter=JointDrafter(LookupDrafter(CONTEXT_SIZE), drafter) if with_lookup else drafter,
    )
    assert ended == plain
    assert statistics.accepted_tokens > 100
    assert caplog.get_records("call") == []


def test_a_model_drafts_for_a_hybrid_one(tmp_path: Path) -> None:
    options = LoadOptions(
        slots=4,
        context_size=CONTEXT_SIZE,
        threads=1,
        gpu_layers=0,
        draft_model=write("qwen3", tmp_path / "draft.gguf", is_faint=True),
    )
    engine = load_engine(write("qwen35", tmp_path / "model.gguf", is_faint=True), options)
    assert isinstance(engine, LlamaEngine)
    assert isinstance(engine.draft_model, LlamaDraftModel)
    wanted = [
        NewSequence(
            id=SequenceId(number),
            prompt=Prompt(tuple(range(300 + number, 340 + 20 * number))),
            max_tokens=60,
            sampling=GREEDY,
        )
        for number in range(4)
    ]
    plain = generate(engine, wanted, slots=4, context_size=CONTEXT_SIZE)[0]
    drafter = ModelDrafter(engine.draft_model, clock=lambda: 0.0)
    ended, statistics = generate(
        engine, wanted, slots=4, context_size=CONTEXT_SIZE, max_draft=4, drafter=drafter
    )
    assert ended == plain
    assert 30 < statistics.accepted_tokens < statistics.drafted_tokens
    engine.free()


@pytest.mark.parametrize("with_drops", [False, True])
def test_drafts_change_nothing_by_chance_nor_where_others_are_cancelled_or_preempted(
    speculating_engine: LlamaEngine,
    drafter: ModelDrafter,
    caplog: pytest.LogCaptureFixture,
    *,
    with_drops: bool,
) -> None:
    engine = speculating_engine
    wanted = sequences(engine, Sampling(seed=3, temperature=0.8))[:8]
    expected = generate(engine, wanted, slots=1, context_size=CONTEXT_SIZE)[0]
    drops = {12: 1, 15: 3, 30: 5, 31: 6} if with_drops else {}
    ended, statistics = generate(
        engine,
        wanted,
        slots=4,
        context_size=CONTEXT_SIZE,
        num_cells=2048 if with_drops else 150,
        max_draft=6,
        drafter=drafter,
        drops=drops,
    )
    left = [one.id for one in wanted if one.id in ended]
    assert len(left) >= len(wanted) - len(drops)
    assert ended == {id: expected[id] for id in left}
    assert with_drops or statistics.num_preemptions > 0
    assert statistics.accepted_tokens > 10
    assert caplog.get_records("call") == []


def test_drafts_follow_a_context_that_shifts(
    speculating_engine: LlamaEngine, drafter: ModelDrafter, caplog: pytest.LogCaptureFixture
) -> None:
    engine = speculating_engine
    wanted: list[NewSequence] = [
        replace(
            one,
            max_tokens=190,
            sampling=replace(GREEDY, ignore_eos=True),
            shift=ContextShift(num_kept=4, num_discarded=60),
        )
        for one in sequences(engine, GREEDY)[:1]
    ]
    expected = generate(engine, wanted, slots=1, context_size=160)[0]
    ended, statistics = generate(
        engine, wanted, slots=1, context_size=160, max_draft=6, drafter=drafter
    )
    assert ended == expected
    assert statistics.accepted_tokens > 20
    assert caplog.get_records("call") == []


def test_an_engine_loads_it_and_one_that_does_not_fit_is_refused(
    model_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    engine = load_engine(
        model_path,
        LoadOptions(
            slots=2, context_size=64, threads=1, gpu_layers=0, speculate=4, draft_model=DRAFT
        ),
    )
    assert engine.draft_model is not None
    assert (engine.draft_model.num_slots, engine.draft_model.num_cells) == (2, 128)
    assert engine.capacity.max_draft == 4
    engine.free()
    missing = tmp_path / "none.gguf"
    with pytest.raises(ModelError, match=r"none\.gguf does not exist: check --draft-model"):
        load_engine(
            model_path,
            LoadOptions(
                slots=2, context_size=64, threads=1, gpu_layers=0, speculate=4, draft_model=missing
            ),
        )


# ---- which models go together


EOS = b"tokenizer.ggml.eos_token_id"


@contextmanager
def opened(path: Path) -> Iterator[Model]:
    model = Model(path, LoadOptions(gpu_layers=0))
    try:
        yield model
    finally:
        model.free()


@pytest.fixture(scope="module")
def draft() -> Iterator[Model]:
    with opened(DRAFT) as model:
        yield model


def with_other_text(gguf: bytes) -> bytes:
    return gguf.replace("Ġbalancer".encode(), "Ġbalancex".encode(), 1)


def with_other_end(gguf: bytes) -> bytes:
    """Another token ends a generation, besides those that do so by their texts."""
    start = gguf.index(EOS) + len(EOS) + 4
    return gguf[:start] + bytes([9]) + gguf[start + 1 :]


def write_smaller(path: Path) -> Path:
    """The draft model without the last 32 tokens."""
    reader = gguf.GGUFReader(DRAFT)
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "tokenizer.ggml.merges"):
            continue
        value = field.contents()
        if name in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type"):
            value = value[:-32]
        elif name == "llama.vocab_size":
            value -= 32
        kind, *inner = field.types
        writer.add_key_value(name, value, kind, inner[-1] if inner else None)
    writer.add_array("tokenizer.ggml.merges", ["Ġ t"])
    for tensor in reader.tensors:
        data = tensor.data[:-32] if tensor.name == "token_embd.weight" else tensor.data
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def refusal(model: Model, draft: Model) -> str:
    """Why one cannot draft for the other: both are named."""
    with pytest.raises(ModelError) as raised:
        check_pair(model, draft)
    message = str(raised.value)
    assert f"--draft-model {draft.path} cannot draft for {model.path}: " in message
    return message


def test_the_demo_model_and_its_draft_model_go_together(model_path: Path, draft: Model) -> None:
    with opened(model_path) as model:
        check_pair(model, draft)
        check_pair(model, model)


def test_other_texts_and_other_ends_are_named(
    model_path: Path, tmp_path: Path, draft: Model
) -> None:
    changed = tmp_path / "changed.gguf"
    changed.write_bytes(with_other_text(model_path.read_bytes()))
    with opened(changed) as model:
        assert "is ' balancer' instead of ' balancex'" in refusal(model, draft)
    changed.write_bytes(with_other_end(model_path.read_bytes()))
    with opened(changed) as model:
        assert "other tokens of its vocabulary end an answer" in refusal(model, draft)


def test_another_size_is_named(model_path: Path, tmp_path: Path) -> None:
    with opened(model_path) as model, opened(write_smaller(tmp_path / "small.gguf")) as small:
        assert "has 2016 tokens instead of 2048" in refusal(model, small)


def test_another_type_and_a_model_that_cannot_go_back_are_named(
    model_path: Path, tmp_path: Path, draft: Model
) -> None:
    with opened(write_recurrent(tmp_path / "recurrent.gguf")) as recurrent:
        assert "of another type (byte-level BPE instead of WordPiece)" in refusal(recurrent, draft)
        assert "cannot drop their last tokens" in refusal(draft, recurrent)
