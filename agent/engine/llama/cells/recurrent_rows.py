"""Rows of recurrent state: the size of a row, and the number of checkpoints with a row.

llama.cpp allocates all rows with the KV cache. Each slot, the spare sequence and each checkpoint
of a recurrent or hybrid model take one row.
"""

from collections.abc import Callable

_STATE_BYTES = 4
"""Bytes of an element of a state."""

MOST = 64
"""Maximum checkpoints with a row; each row also takes a row of logits."""

DEVICE_BYTES = 512 * 2**20
"""Maximum bytes of rows on devices, whose memory is scarcer than the host's."""


def row_bytes(number: Callable[[str], int | None]) -> int:
    """Return an upper estimate of a row's bytes; 0 if the file lacks information.

    `number` returns a hyperparameter. The formula follows llama.cpp (`llama_hparams::n_embd_r` and
    `n_embd_s`), as if all layers had a state.
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
    """Return the number of checkpoints with a row: one per slot, and more if memory allows.

    On processors the limit of memory is `host_cache`, in bytes.
    """
    most_bytes = DEVICE_BYTES if is_offloaded else host_cache
    fitting = most_bytes // row_bytes if row_bytes else 0
    return max(slots, min(fitting, MOST))
