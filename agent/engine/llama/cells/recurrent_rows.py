"""Rows of recurrent state: how large one is, and how many checkpoints have one.

llama.cpp allocates all rows with the KV cache. Besides one for each slot, and the spare one, each
checkpoint of a recurrent or hybrid model takes one.
"""

from collections.abc import Callable

_STATE_BYTES = 4
"""Of each element of a state."""

MOST = 64
"""More are not needed by as many slots as there usually are, and each takes a row of logits."""

DEVICE_BYTES = 512 * 2**20
"""Of the memory of devices, which is dearer than the host's."""


def row_bytes(number: Callable[[str], int | None]) -> int:
    """Bytes of a row, or a little more; 0 where the file does not say enough.

    `number` gives a hyperparameter. After llama.cpp (`llama_hparams::n_embd_r` and `n_embd_s`), as
    if all layers had a state.
    """

    def of(key: str) -> int:
        return max(0, number(key) or 0)

    inner, state = of("ssm.inner_size"), of("ssm.state_size")
    num_before = max(0, of("ssm.conv_kernel") - 1)
    per_layer = num_before * (inner + 2 * of("ssm.group_count") * state) + inner * state
    width = of("embedding_length")
    per_layer += width * max(0, of("shortconv.l_cache") - 1)
    if head := of("wkv.head_size"):
        per_layer += width * (head + 2)
    head = of("kda.head_dim")
    per_layer += of("attention.head_count") * head * (head + 3 * num_before)
    return _STATE_BYTES * per_layer * of("block_count")


def num_rows(row_bytes: int, *, slots: int, host_cache: int, is_offloaded: bool) -> int:
    """How many checkpoints have a row: one for each slot, and more where there is memory.

    On processors that is `host_cache`, the part of it that is for them.
    """
    most_bytes = DEVICE_BYTES if is_offloaded else host_cache
    fitting = most_bytes // row_bytes if row_bytes else 0
    return max(slots, min(fitting, MOST))
