from io import BytesIO
from pathlib import Path
from typing import Any

import gguf
import pytest

from arriero.agent.engine.llama.embedding import MAX_SEQUENCES
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.gguf.header import GgufHeader, read_header
from arriero.agent.gguf.memory_estimate import (
    EMBEDDING_LOGITS,
    EMBEDDING_SEQUENCES,
    DraftFile,
    MemoryEstimate,
    estimate,
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


def head(**more: Any) -> GgufHeader:
    extra = {f"llama.{key.replace('__', '.')}": value for key, value in more.items()}
    return read_header(BytesIO(header({**SHAPE, **extra})))


def cache(found: MemoryEstimate | None) -> int:
    assert found is not None
    return found.cache


def test_the_demo_model_as_llama_cpp_reports_it() -> None:
    """llama.cpp logs 6.63 MiB of weights, 16 MiB of cache, 14.22 MiB to compute and 0.04 of rows.

    With 4 slots and 8192 cells.
    """
    with DEMO.open("rb") as file:
        options = LoadOptions(slots=4, context_size=2048)
        found = estimate(read_header(file), options, file_bytes=DEMO.stat().st_size)
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
    with DEMO.open("rb") as file:
        sizes = LoadOptions(slots=4, context_size=2048, **options)
        found = estimate(read_header(file), sizes, file_bytes=DEMO.stat().st_size)
    assert found is not None
    assert found.cache == cache_size * MIB
    assert found.compute == pytest.approx(compute_size * MIB, rel=0.05)


def test_the_cache_has_keys_and_values_of_every_layer() -> None:
    assert cache(estimate(head(), ONE, file_bytes=0)) == 256 * 2 * 128 * 2
    shared = head(attention__head_count_kv=1)
    assert cache(estimate(shared, ONE, file_bytes=0)) == 256 * 2 * 32 * 2
    by_layer = head(attention__head_count_kv=[1, 0])
    assert cache(estimate(by_layer, ONE, file_bytes=0)) == 256 * 32 * 2
    wide = head(attention__key_length=100, attention__value_length=60)
    assert cache(estimate(wide, ONE, file_bytes=0)) == 256 * 2 * 4 * 160 * 2
    assert (
        cache(estimate(head(), LoadOptions(slots=1, context_size=16), file_bytes=0))
        == 256 * 2 * 128 * 2
    )


def test_slots_and_checkpoints_have_rows_of_recurrent_state() -> None:
    recurrent = head(ssm__inner_size=128, ssm__state_size=16, ssm__conv_kernel=4)
    row = 2 * (128 * 16 + 3 * 128) * 4
    plain = cache(estimate(head(), ONE, file_bytes=0))
    assert cache(estimate(recurrent, ONE, file_bytes=0)) == plain + 3 * row
    drafting = LoadOptions(slots=1, context_size=256, speculate=4)
    assert cache(estimate(recurrent, drafting, file_bytes=0)) == plain + 3 * 5 * row


def test_drafts_and_the_vocabulary_take_rows_of_logits() -> None:
    small, large = (
        estimate(
            head(vocab_size=10**6),
            LoadOptions(slots=2, context_size=128, speculate=draft),
            file_bytes=0,
        )
        for draft in (0, 4)
    )
    assert small is not None and large is not None
    assert large.compute - small.compute == 2 * 4 * 10**6 * 4
    assert small.compute > ONE.ubatch_size * 256 * 2


def test_a_draft_model_adds_its_own_and_no_second_process() -> None:
    options = LoadOptions(slots=2, context_size=256)
    found = estimate(head(), options, file_bytes=10**6)
    assert found is not None
    both = estimate(head(), options, file_bytes=10**6, draft=DraftFile(head(), 10**6))
    assert both is not None
    assert both.cache == 2 * found.cache
    assert both.weights == 2 * found.weights
    assert both.compute > found.compute
    assert (both.process, both.num_layers) == (found.process, found.num_layers)
    unknown = read_header(BytesIO(header({"general.architecture": "llama"})))
    assert estimate(head(), options, file_bytes=0, draft=DraftFile(unknown, 1)) is None


def test_a_draft_model_has_no_more_cells_than_slots_can_fill() -> None:
    options = LoadOptions(slots=2, context_size=256, kv_cells=1024)
    found = estimate(head(), options, file_bytes=0, draft=DraftFile(head(), 0))
    assert cache(found) == (1024 + 512) * 2 * 128 * 2


def test_the_total_is_the_sum() -> None:
    parts = MemoryEstimate(weights=1, cache=2, compute=4, process=8, embeddings=16, host_cache=32)
    assert parts.total == 63


def test_the_host_cache_counts() -> None:
    without, with_it = (
        estimate(head(), ONE.model_copy(update={"host_cache": size}), file_bytes=0)
        for size in (0, 1000)
    )
    assert without is not None and with_it is not None
    assert with_it.total - without.total == 1000


def test_embedding_takes_cells_for_an_input_and_a_step() -> None:
    found = estimate(head(), LoadOptions(slots=1, context_size=1024), file_bytes=0)
    assert found is not None
    cells = 1024 + ONE.ubatch_size
    assert found.embeddings > cells * 2 * 128 * 2, "keys and values of every layer"
    large = estimate(head(vocab_size=10**6), LoadOptions(slots=1, context_size=1024), file_bytes=0)
    assert large is not None
    assert large.embeddings < EMBEDDING_LOGITS + found.embeddings, "with few rows of logits"


def test_the_engine_embeds_as_is_estimated() -> None:
    assert EMBEDDING_SEQUENCES == MAX_SEQUENCES


def test_what_layers_on_gpus_take_there() -> None:
    found = MemoryEstimate(weights=60, cache=20, compute=20, host_cache=7, num_layers=9)

    def on_gpus(**options: Any) -> int | None:
        return found.on_gpus(LoadOptions(**{"gpu_layers": -1, **options}))

    assert on_gpus() == 100
    assert on_gpus(gpu_layers=99) == 100
    assert on_gpus(gpu_layers=5) == 50
    assert on_gpus(gpu_layers=0) == 0
    assert on_gpus(device="none") == 0
    assert on_gpus(kv_offload=False) == 80
    assert on_gpus(gpu_layers="auto") is None, "what fits"
    assert on_gpus(override_tensor="exps=CPU") is None, "patterns decide"
    assert on_gpus(n_cpu_moe=4) == 100, "there are no experts"


def test_experts_that_stay_in_host_memory() -> None:
    found = MemoryEstimate(
        weights=90, cache=0, compute=0, num_layers=8, layer_experts=10, num_dense=1
    )

    def on_gpus(gpu_layers: int, n_cpu_moe: int) -> int | None:
        return found.on_gpus(LoadOptions(gpu_layers=gpu_layers, n_cpu_moe=n_cpu_moe))

    assert [on_gpus(-1, count) for count in (0, 1, 2, 8, 99)] == [90, 90, 80, 20, 20]
    assert on_gpus(5, 4) == 50, "the last four layers are offloaded, and the output"
    assert on_gpus(5, 6) == 30


def test_experts_have_most_of_the_weights_of_a_mixture(tmp_path: Path) -> None:
    """Against the tensors of a file, and of one with a dense layer and shared experts."""
    for name in ("qwen3moe", "deepseek2"):
        path = write(name, tmp_path / f"{name}.gguf")
        with path.open("rb") as file:
            found = estimate(read_header(file), ONE, file_bytes=path.stat().st_size)
        sizes = {one.name: int(one.n_bytes) for one in gguf.GGUFReader(path).tensors}
        experts = sum(
            size for one, size in sizes.items() if one.startswith("blk.1.") and "exps" in one
        )
        assert found is not None
        assert found.layer_experts == pytest.approx(experts, rel=0.1)
        assert found.num_dense == (name == "deepseek2")


def test_keys_and_values_have_their_types() -> None:
    def cells(**types: Any) -> int:
        return cache(estimate(head(), ONE.model_copy(update=types), file_bytes=0))

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
    assert estimate(found, ONE, file_bytes=0) is None
