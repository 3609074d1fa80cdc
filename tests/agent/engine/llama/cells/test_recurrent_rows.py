"""Sizes of recurrent states, and how many there is room for."""

import pytest

from arriero.agent.engine.llama.cells.recurrent_rows import DEVICE_BYTES, MOST, num_rows, row_bytes

QWEN3_NEXT = {
    "block_count": 48,
    "embedding_length": 2048,
    "attention.head_count": 16,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 4096,
    "ssm.state_size": 128,
    "ssm.group_count": 16,
}
LFM2 = {"block_count": 16, "embedding_length": 2048, "shortconv.l_cache": 3}
RWKV = {"block_count": 24, "embedding_length": 2048, "wkv.head_size": 64}
KIMI = {
    "block_count": 27,
    "embedding_length": 2304,
    "attention.head_count": 32,
    "ssm.conv_kernel": 4,
    "kda.head_dim": 128,
}


@pytest.mark.parametrize(
    ("facts", "mebibytes"),
    [
        (QWEN3_NEXT, 100),  # three in four layers have one: 75 are measured
        (LFM2, 0.25),  # ten of sixteen: 0.16
        (RWKV, 12.4),
        (KIMI, 57.8),
        ({"block_count": 28, "embedding_length": 1024}, 0),
        ({}, 0),
    ],
)
def test_the_size_of_a_row(facts: dict[str, int], mebibytes: float) -> None:
    assert row_bytes(facts.get) / 2**20 == pytest.approx(mebibytes, rel=0.02)


def test_checkpoints_have_as_much_as_evicted_prefixes_and_one_for_each_slot() -> None:
    def count(row: int, host_cache: int, *, is_offloaded: bool = False) -> int:
        return num_rows(row, slots=4, host_cache=host_cache, is_offloaded=is_offloaded)

    assert count(100, 1000) == 10
    assert count(100, 0) == count(0, 1000) == 4
    assert count(1, 1000) == MOST
    assert count(DEVICE_BYTES // 8, 0, is_offloaded=True) == 8
