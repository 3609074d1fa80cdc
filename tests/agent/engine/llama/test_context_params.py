"""Options that reach llama.cpp's contexts, and KV caches of all types, on the demo model."""

import ctypes
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from arriero.agent.engine.embedding.embedding_plan import Slice
from arriero.agent.engine.embedding.pooling import Rows
from arriero.agent.engine.llama.context import context_params
from arriero.agent.engine.llama.embedding import LlamaEmbedding
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.llama.model import Model
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.model_error import ModelError
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.stored_prompt import Piece, StoredPrompt
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import (
    Clear,
    Decoded,
    NotLoaded,
    Outcome,
    Place,
    Run,
    Step,
)
from arriero.agent.gguf.header import read_header
from arriero.shared.models.engine_options import (
    CACHE_BLOCK,
    CACHE_BLOCK_BYTES,
    CacheType,
    cache_bytes,
)
from bench.small_models import write
from tests.agent.engine.changed_options import changed
from tests.agent.engine.llama.running import (
    GREEDY,
    Ended,
    generate,
    prompt,
    read_out,
    restored,
    sequences,
    wipe,
)

DEMO = Path(__file__).parents[4] / "demo" / "arriero-demo.gguf"
TEXT = tuple(range(100, 160))
ID = SequenceId(1)
TYPES: tuple[CacheType, ...] = get_args(CacheType)
OPTIONS = LoadOptions(slots=4, context_size=256, threads=1, gpu_layers=0)

ELSEWHERE = {
    **dict.fromkeys(("slots", "context_size", "kv_cells", "kv_layout", "swa_full"), "`Context`"),
    **dict.fromkeys(
        (
            *("gpu_layers", "kernels", "device", "split_mode", "tensor_split", "main_gpu"),
            *("n_cpu_moe", "override_tensor", "load_mode", "mlock", "override_kv"),
        ),
        "`model_params`",
    ),
    **dict.fromkeys(("numa", "rpc"), "`load_engine`"),
    **dict.fromkeys(("fit", "fit_target", "fit_ctx", "fit_cache_type"), "`fitting`"),
    **dict.fromkeys(("projector", "draft_model", "speculate", "deterministic"), "`load_engine`"),
    **dict.fromkeys(("host_cache", "max_stall"), "nothing of llama.cpp"),
}
"""Options that no context over a model begins with, and what they are for."""


def test_each_option_is_in_the_parameters_of_contexts_or_elsewhere() -> None:
    plain = bytes(context_params(OPTIONS))
    here = {
        name
        for name in LoadOptions.model_fields
        if bytes(context_params(changed(OPTIONS, name))) != plain
    }
    assert here == set(LoadOptions.model_fields) - set(ELSEWHERE)


def test_blocks_are_as_large_as_ggml_has_them() -> None:
    from llama_cpp._ggml import libggml

    libggml.ggml_type_size.restype = ctypes.c_size_t
    libggml.ggml_blck_size.restype = ctypes.c_int64
    libggml.ggml_type_name.restype = ctypes.c_char_p
    for name in TYPES:
        number = context_params(OPTIONS.model_copy(update={"cache_type_k": name})).type_k
        elements, size = libggml.ggml_blck_size(number), libggml.ggml_type_size(number)
        assert libggml.ggml_type_name(number).decode() == name
        assert CACHE_BLOCK_BYTES[name] * elements == size * CACHE_BLOCK, name


def loaded(path: Path, **options: Any) -> LlamaEngine:
    engine = load_engine(path, OPTIONS.model_copy(update=options))
    assert isinstance(engine, LlamaEngine)
    return engine


KEYS_AND_VALUES: list[tuple[CacheType, CacheType]] = [
    ("q8_0", "q8_0"),
    ("q4_0", "f16"),
    ("bf16", "f32"),
]


@pytest.fixture(scope="module", params=["unified", "streams"])
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=KEYS_AND_VALUES, ids=" ".join)
def types(request: pytest.FixtureRequest) -> tuple[CacheType, CacheType]:
    keys, values = request.param
    return keys, values


@pytest.fixture(scope="module")
def engine(types: tuple[CacheType, CacheType], layout: str) -> Iterator[LlamaEngine]:
    keys, values = types
    engine = loaded(DEMO, kv_layout=layout, cache_type_k=keys, cache_type_v=values)
    yield engine
    engine.free()


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    model = Model(DEMO, LoadOptions(gpu_layers=0))
    yield model
    model.free()


class TestCacheTypes:
    """Each of these caches, in both layouts."""

    def test_a_batch_gives_everyone_the_tokens_of_a_run_alone(self, engine: LlamaEngine) -> None:
        """Slots are reused, and what sequences begin with is shared."""
        wanted = sequences(engine, GREEDY)[:4]
        alone: Ended = {}
        for one in wanted:
            alone |= generate(engine, [one], slots=1, num_cells=1024)[0]
        assert generate(engine, wanted, slots=3, num_cells=1024)[0] == alone

    def test_a_saved_state_has_the_bytes_of_its_cells(
        self, engine: LlamaEngine, types: tuple[CacheType, CacheType]
    ) -> None:
        """And what is loaded goes on as it was."""
        tokens = prompt(engine, "What is a slot?")
        counts = (5, len(tokens) - 5)
        first, pieces = _answer_and_pieces(engine, tokens, counts)
        sizes = [len(state) for state in pieces]
        cell_bytes = _bytes_of_a_cell(*types)
        assert sizes[1] - sizes[0] == (counts[1] - counts[0]) * cell_bytes
        assert cell_bytes <= engine.capacity.cell_bytes <= cell_bytes + 1000
        assert _answer_from(engine, tokens, pieces, counts) == first

    def test_a_state_of_another_type_is_not_loaded(self, engine: LlamaEngine, layout: str) -> None:
        other = loaded(DEMO, kv_layout=layout, cache_type_k="q5_1", cache_type_v="q5_1")
        tokens = prompt(other, "What is a slot?")
        counts = (5, len(tokens) - 5)
        _, pieces = _answer_and_pieces(other, tokens, counts)
        other.free()
        assert _answer_from(engine, tokens, pieces, counts) is None


def test_keys_and_values_of_mla_have_one_type(tmp_path: Path) -> None:
    path = write("deepseek2", tmp_path / "model.gguf")
    with pytest.raises(ModelError, match="--cache-type-k q8_0 and --cache-type-v f16: choose"):
        loaded(path, cache_type_k="q8_0")


@pytest.mark.parametrize(("flash_attn", "is_transposed"), [("on", 0), ("off", 1)])
def test_values_lie_as_attention_reads_them(flash_attn: str, is_transposed: int) -> None:
    engine = loaded(DEMO, flash_attn=flash_attn)
    tokens = prompt(engine, "What is a slot?")
    _, [state] = _answer_and_pieces(engine, tokens, (len(tokens),))
    engine.free()
    after_cells = 8 + 4 + 4 + 12 * len(tokens)
    assert int.from_bytes(state[after_cells : after_cells + 4], "little") == is_transposed


@pytest.fixture(scope="module")
def plain() -> Ended:
    return _answers()


class TestAnswers:
    """What options that are no matter of a cache do to an answer."""

    @pytest.mark.parametrize(
        "options",
        [
            {"batch_size": 128, "ubatch_size": 64},
            {"threads_batch": 2, "kv_offload": False, "op_offload": False},
            {"flash_attn": "off"},
            {"rope_scale": 1.0, "yarn_orig_ctx": 16, "yarn_beta_fast": 8.0},  # without YaRN
        ],
        ids=str,
    )
    def test_nothing(self, plain: Ended, options: dict[str, Any]) -> None:
        assert _answers(**options) == plain

    @pytest.mark.parametrize(
        "options",
        [
            {"rope_freq_base": 500.0},
            {"rope_scaling": "linear", "rope_scale": 8.0},
            {"rope_scaling": "yarn", "rope_scale": 8.0, "yarn_orig_ctx": 64},
        ],
        ids=str,
    )
    def test_other_positions_are_another_answer(
        self, plain: Ended, options: dict[str, Any]
    ) -> None:
        assert _answers(**options) != plain


class TestEmbedding:
    """The context that embeds is another one, and has the same options."""

    @pytest.mark.parametrize(
        "options",
        [{"cache_type_k": "q4_0"}, {"cache_type_v": "q4_0"}, {"rope_freq_base": 5e3}],
        ids=str,
    )
    def test_it_obeys(self, model: Model, options: dict[str, Any]) -> None:
        plain, other = _vectors(model), _vectors(model, **options)
        assert other == pytest.approx(plain, abs=1.0)
        assert np.abs(other - plain).max() > 1e-3


# ---- helpers


def _answer_and_pieces(
    engine: LlamaEngine, tokens: Sequence[int], counts: Sequence[int]
) -> tuple[Outcome, list[bytes]]:
    """What comes after `tokens`, and their state in pieces of so many cells."""
    wipe(engine)
    engine.open(_sequence(tokens))
    places = (Place(0, 0),) if engine.capacity.num_streams else ()
    first = engine.execute(Step(places, (_run(0, 0, tokens),), 0, len(tokens)))
    starts = accumulate(counts, initial=0)
    reads = read_out(0, *zip(starts, counts, strict=False))
    outcome = engine.execute(Step(reads, (), 0, 0))
    assert isinstance(outcome, Decoded)
    engine.close(ID)
    return first, [bytes(state) for state in outcome.saved]


def _answer_from(
    engine: LlamaEngine, tokens: Sequence[int], pieces: Sequence[bytes], counts: Sequence[int]
) -> Outcome | None:
    """What comes after `tokens`, whose state is loaded but for the last; `None`: it is refused."""
    wipe(engine)
    engine.open(_sequence(tokens))
    parts = tuple(Piece(count, piece) for count, piece in zip(counts, pieces, strict=True))
    stored, length = StoredPrompt(Prompt(tuple(tokens)), parts), len(tokens)
    places = (Place(1, 1),) if engine.capacity.num_streams else ()
    edits = (*places, *restored(1, stored), Clear(1, length - 1))
    outcome = engine.execute(Step(edits, (_run(1, length - 1, tokens[-1:]),), 0, 1))
    engine.close(ID)
    return None if isinstance(outcome, NotLoaded) else outcome


def _sequence(tokens: Sequence[int]) -> NewSequence:
    return NewSequence(id=ID, prompt=Prompt(tuple(tokens)), max_tokens=None, sampling=GREEDY)


def _run(slot: int, start: int, tokens: Sequence[int]) -> Run:
    return Run(ID, slot, start, tuple(tokens), True)


def _bytes_of_a_cell(keys: CacheType, values: CacheType) -> int:
    """Its position and owner, and the rows of all layers of the demo model."""
    with DEMO.open("rb") as file:
        header = read_header(file)
    layers, heads = header.number("block_count"), header.number("attention.head_count_kv")
    width, all_heads = header.number("embedding_length"), header.number("attention.head_count")
    assert layers and heads and width and all_heads
    row = heads * width // all_heads
    return 12 + layers * (cache_bytes(row, keys) + cache_bytes(row, values))


def _answers(**options: Any) -> Ended:
    engine = loaded(DEMO, **options)
    wanted = sequences(engine, GREEDY)[1:4]
    ended, _ = generate(engine, wanted, slots=3, num_cells=1024)
    engine.free()
    return ended


def _vectors(model: Model, **options: Any) -> Rows:
    embedding = LlamaEmbedding(model, OPTIONS.model_copy(update=options), has_memory=True)
    context = embedding.open(len(TEXT), ranks=False)
    [rows] = context.compute([Slice(0, 0, TEXT, True)])
    context.free()
    return rows
