from io import BytesIO
from pathlib import Path
from typing import Any

import gguf
import pytest

from arriero.agent.engine.llama.embedding import MAX_SEQUENCES
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.gguf.header import read_header
from arriero.agent.gguf.memory_estimate import (
    EMBEDDING_LOGITS,
    EMBEDDING_SEQUENCES,
    LayerMemory,
    MemoryEstimate,
    ModelFileSizes,
    bytes_beside,
    estimate,
    read_sizes,
    sizes_of,
)
from bench.small_models import write
from tests.agent.gguf.gguf_files import header

DEMO = Path(__file__).parents[3] / "demo" / "arriero-demo.gguf"
MIB = 2**20
ONE = LoadOptions(slots=1, context_size=256)
SHAPE: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
}


def head(**more: Any) -> ModelFileSizes:
    extra = {f"llama.{key.replace('__', '.')}": value for key, value in more.items()}
    return ModelFileSizes(read_header(BytesIO(header({**SHAPE, **extra}))), {}, 0)


def cache(found: MemoryEstimate | None) -> int:
    assert found is not None
    return found.cache


def test_the_demo_model_as_llama_cpp_reports_it() -> None:
    """llama.cpp logs 6.63 MiB of weights, 16 MiB of cache, 14.22 MiB to compute and 0.04 of rows.

    With 4 slots and 8192 cells.
    """
    found = estimate(read_sizes(DEMO), LoadOptions(slots=4, context_size=2048))
    assert found is not None
    assert found.cache == 16 * MIB
    assert found.weights == pytest.approx(6.63 * MIB, rel=0.01)
    assert found.compute == pytest.approx(14.26 * MIB, rel=0.05)


@pytest.mark.parametrize(
    ("options", "cache_size", "compute_size"),
    [
        ({"flash_attn": "off"}, 16, 83.53),
        ({"cache_type_k": "q8_0", "cache_type_v": "q8_0"}, 8.5, 13.79),
        ({"ubatch_size": 128}, 16, 3.63),
    ],
    ids=str,
)
def test_and_as_it_reports_it_with_other_options(
    options: dict[str, Any], cache_size: float, compute_size: float
) -> None:
    """The sizes in MiB are those of llama.cpp's log, of what is computed and of a row each."""
    found = estimate(read_sizes(DEMO), LoadOptions(slots=4, context_size=2048, **options))
    assert found is not None
    assert found.cache == cache_size * MIB
    assert found.compute == pytest.approx(compute_size * MIB, rel=0.05)


def test_the_cache_has_keys_and_values_of_every_layer() -> None:
    assert cache(estimate(head(), ONE)) == 256 * 2 * 128 * 2
    shared = head(attention__head_count_kv=1)
    assert cache(estimate(shared, ONE)) == 256 * 2 * 32 * 2
    by_layer = head(attention__head_count_kv=[1, 0])
    assert cache(estimate(by_layer, ONE)) == 256 * 32 * 2
    wide = head(attention__key_length=100, attention__value_length=60)
    assert cache(estimate(wide, ONE)) == 256 * 2 * 4 * 160 * 2
    assert cache(estimate(head(), LoadOptions(slots=1, context_size=16))) == 256 * 2 * 128 * 2


def test_slots_and_checkpoints_have_rows_of_recurrent_state() -> None:
    recurrent = head(
        ssm__inner_size=128,
        ssm__state_size=16,
        ssm__conv_kernel=4,
        attention__head_count_kv=[4, 4],  # beside each other in each layer
    )
    row = 2 * (128 * 16 + 3 * 128) * 4
    plain = cache(estimate(head(), ONE))
    assert cache(estimate(recurrent, ONE)) == plain + 3 * row
    drafting = LoadOptions(slots=1, context_size=256, speculate=4)
    assert cache(estimate(recurrent, drafting)) == plain + 3 * 5 * row


def test_drafts_and_the_vocabulary_take_rows_of_logits() -> None:
    small, large = (
        estimate(
            head(vocab_size=10**6),
            LoadOptions(slots=2, context_size=128, speculate=draft),
        )
        for draft in (0, 4)
    )
    assert small is not None and large is not None
    assert large.compute - small.compute == 2 * 4 * 10**6 * 4
    assert small.compute > ONE.ubatch_size * 256 * 2


def test_a_draft_model_is_loaded_beside(tmp_path: Path) -> None:
    path = tmp_path / "draft.gguf"
    path.write_bytes(header(SHAPE) + bytes(10**6))
    options = LoadOptions(slots=2, context_size=256, kv_cells=1024)
    assert bytes_beside(options) == 0
    options = options.model_copy(update={"draft_model": path})
    drafted = bytes_beside(options)
    alone = estimate(read_sizes(path), LoadOptions(slots=2, context_size=256))
    assert alone is not None and drafted is not None
    assert drafted == alone.weights + alone.cache + alone.compute, "no more cells than slots fill"
    with_it, without = (estimate(head(), options, beside=size) for size in (drafted, 0))
    assert with_it is not None and without is not None
    assert with_it.total - without.total == drafted
    path.write_bytes(header({"general.architecture": "llama"}))
    assert bytes_beside(options) is None


def test_the_total_is_the_sum() -> None:
    parts = MemoryEstimate(
        layers=(LayerMemory(dense=1, experts=2, cache=4),),
        output=8,
        elsewhere=16,
        compute=32,
        embeddings=64,
        beside=128,
        host_cache=256,
        process=512,
    )
    assert parts.total == 1023


def test_the_host_cache_counts() -> None:
    without, with_it = (
        estimate(head(), ONE.model_copy(update={"host_cache": size})) for size in (0, 1000)
    )
    assert without is not None and with_it is not None
    assert with_it.total - without.total == 1000


def test_embedding_takes_cells_for_an_input_and_a_step() -> None:
    found = estimate(head(), LoadOptions(slots=1, context_size=1024))
    assert found is not None
    cells = 1024 + ONE.ubatch_size
    assert found.embeddings > cells * 2 * 128 * 2, "keys and values of every layer"
    large = estimate(head(vocab_size=10**6), LoadOptions(slots=1, context_size=1024))
    assert large is not None
    assert large.embeddings < EMBEDDING_LOGITS + found.embeddings, "with few rows of logits"


def test_the_engine_embeds_as_is_estimated() -> None:
    assert EMBEDDING_SEQUENCES == MAX_SEQUENCES


def test_what_layers_on_gpus_take_there() -> None:
    layers = (LayerMemory(dense=6, cache=2),) * 9
    found = MemoryEstimate(layers=layers, output=8, compute=20, elsewhere=3, host_cache=7)

    def on_gpus(**options: Any) -> int | None:
        return found.on_gpus(LoadOptions(**{"gpu_layers": -1, **options}))

    assert on_gpus() == 100
    assert on_gpus(gpu_layers=99) == 100
    assert on_gpus(gpu_layers=5) == 4 * 8 + 8 + 20, "the output is one"
    assert on_gpus(gpu_layers=0) == 0
    assert on_gpus(device="none") == 0
    assert on_gpus(kv_offload=False) == 82
    assert on_gpus(gpu_layers="auto") is None, "what fits"
    assert on_gpus(override_tensor="exps=CPU") is None, "patterns decide"
    assert on_gpus(n_cpu_moe=4) == 100, "there are no experts"


def test_experts_that_stay_in_host_memory() -> None:
    dense, mixture = LayerMemory(dense=10), LayerMemory(dense=0, experts=10)
    found = MemoryEstimate(layers=(dense, *[mixture] * 7), output=10)

    def on_gpus(gpu_layers: int, n_cpu_moe: int) -> int | None:
        return found.on_gpus(LoadOptions(gpu_layers=gpu_layers, n_cpu_moe=n_cpu_moe))

    assert [on_gpus(-1, count) for count in (0, 1, 2, 8, 99)] == [90, 90, 80, 20, 20]
    assert on_gpus(5, 4) == 50, "the last four layers are offloaded, and the output"
    assert on_gpus(5, 6) == 30


@pytest.mark.parametrize("name", ["qwen3moe", "deepseek2"])
def test_layers_have_what_their_tensors_have(tmp_path: Path, name: str) -> None:
    path = write(name, tmp_path / f"{name}.gguf")
    found = estimate(read_sizes(path), ONE)
    sizes = {one.name: int(one.n_bytes) for one in gguf.GGUFReader(path).tensors}
    experts = sum(size for one, size in sizes.items() if one.startswith("blk.1.") and "exps" in one)
    assert found is not None
    assert found.layers[1].experts == experts > 0
    assert (found.layers[0].experts == 0) == (name == "deepseek2")


def test_of_the_first_of_several_files_layers_have_equal_parts_of_all() -> None:
    """A mixture's are experts, so one whose experts stay on the host is not refused for them."""
    several = {**SHAPE, "split.count": 3}
    for more, kind in (({}, "dense"), ({"llama.expert_count": 8}, "experts")):
        data = header({**several, **more}, {"blk.0.attn_q.weight": (64, 64)})
        first = read_header(BytesIO(data))
        found = estimate(sizes_of([(first, first.data_offset + 900)]), ONE)
        assert found is not None
        assert [getattr(layer, kind) for layer in found.layers] == [300, 300]
        assert (found.output, found.weights) == (300, 900)


def test_keys_and_values_have_their_types() -> None:
    def cells(**types: Any) -> int:
        return cache(estimate(head(), ONE.model_copy(update=types)))

    assert cells() == 256 * 2 * 128 * 2
    assert cells(cache_type_k="f32") == 256 * 2 * 64 * (4 + 2)
    assert cells(cache_type_k="q8_0", cache_type_v="q4_0") == 256 * 2 * 2 * (34 + 18)


@pytest.mark.parametrize(
    "metadata",
    [{}, {"general.architecture": "llama"}, {**SHAPE, "llama.block_count": 2**40}],
    ids=["nothing", "no shape", "too many layers"],
)
def test_a_header_that_says_too_little(metadata: dict[str, Any]) -> None:
    found = read_header(BytesIO(header(metadata)))
    assert estimate(ModelFileSizes(found, {}, 0), ONE) is None
