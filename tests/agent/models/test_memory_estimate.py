from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from arriero.agent.engine.llama.embedding import MAX_CHUNK, MAX_SEQUENCES
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.models.gguf_header import GgufHeader, read_header
from arriero.agent.models.memory_estimate import (
    EMBEDDING_CHUNK,
    EMBEDDING_LOGITS,
    EMBEDDING_SEQUENCES,
    MICRO_BATCH,
    DraftFile,
    MemoryEstimate,
    estimate,
)
from tests.agent.models.gguf_files import header

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
    assert small.compute > MICRO_BATCH * 256 * 2


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
    cells = 1024 + EMBEDDING_CHUNK
    assert found.embeddings > cells * 2 * 128 * 2, "keys and values of every layer"
    large = estimate(head(vocab_size=10**6), LoadOptions(slots=1, context_size=1024), file_bytes=0)
    assert large is not None
    assert large.embeddings < EMBEDDING_LOGITS + found.embeddings, "with few rows of logits"


def test_the_engine_embeds_as_is_estimated() -> None:
    assert (EMBEDDING_CHUNK, EMBEDDING_SEQUENCES) == (MAX_CHUNK, MAX_SEQUENCES)


def test_what_layers_on_gpus_take_there() -> None:
    found = MemoryEstimate(weights=60, cache=20, compute=20, host_cache=7, num_layers=9)
    assert found.on_gpus(-1) == 100
    assert found.on_gpus(99) == 100
    assert found.on_gpus(5) == 50
    assert found.on_gpus(0) == 0


@pytest.mark.parametrize(
    "metadata",
    [{}, {"general.architecture": "llama"}, {**SHAPE, "llama.block_count": 2**40}],
    ids=["nothing", "no shape", "too many layers"],
)
def test_a_header_that_says_too_little(metadata: dict[str, Any]) -> None:
    found = read_header(BytesIO(header(metadata)))
    assert estimate(found, ONE, file_bytes=0) is None
