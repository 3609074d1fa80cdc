"""Which layout the KV cache has: one cache for all sequences, or a stream for each.

On processors a step of many streams is faster with a stream for each: attention passes over every
cell of the cache that a sequence has part in. On GPUs nobody has measured it.
"""

from dataclasses import dataclass

from .....shared.reports.model_info import KvLayout
from ...load_options import LoadOptions
from ...model_error import ModelError

_ROUNDING = 256
"""llama.cpp's streams have a multiple of so many cells."""

TILE = 8
"""Rows: the fewest with which all of llama.cpp's matrix kernels on CPUs do as with more."""


@dataclass(frozen=True, slots=True)
class Layout:
    """`num_cells` in all, in `num_streams`; 0 streams are one cache for all."""

    num_cells: int
    num_streams: int = 0

    @property
    def name(self) -> KvLayout:
        """As settings and views have it."""
        return "streams" if self.num_streams else "unified"


def num_streams_for(slots: int) -> int:
    """How many streams there have to be for so many slots: groups divide the rows of a tile."""
    if slots > TILE // 2:
        return -(-slots // TILE) * TILE
    return next(count for count in (1, 2, 4) if count >= slots)


def choose_layout(
    options: LoadOptions, *, can_share: bool, is_offloaded: bool, has_grid: bool = False
) -> Layout:
    """The layout of the cells that `options` want.

    Models that cannot share prefixes have states of their own form, with which streams are not
    used; nor are they where pictures have places in two dimensions (`has_grid`), whose states
    cannot be put together. A `deterministic` engine has nothing but streams, with room for filling
    rows. Raises `ModelError` where streams are wanted and cannot be had.
    """
    slots, context_size = options.slots, options.slot_tokens
    wanted, deterministic = options.kv_layout, options.deterministic
    least = slots * context_size
    num_cells = options.num_cells
    if deterministic:
        _check_deterministic(can_share=can_share, is_offloaded=is_offloaded)
        wanted = "streams"
    if wanted == "streams" and not can_share:
        raise ModelError(
            "--kv-layout streams does not fit this model: its sequences cannot give up their last "
            "tokens (recurrent, hybrid or sliding window); leave it at auto"
        )
    if wanted == "streams" and has_grid:
        raise ModelError(
            "--kv-layout streams does not fit this projector: its pictures have places in two "
            "dimensions; leave it at auto"
        )
    if wanted == "streams" and num_cells < least:
        raise ModelError(
            f"--kv-layout streams needs {slots} slots times {context_size} tokens of context: "
            f"raise --kv-cells {num_cells} to {least}, or take --kv-layout unified"
        )
    pays = slots > 1 and can_share and not has_grid and not is_offloaded and num_cells >= least
    if wanted == "streams" or (wanted == "auto" and AUTO == "streams" and pays):
        size = -(-(context_size + TILE * deterministic) // _ROUNDING) * _ROUNDING
        count = max(slots, num_cells // size)
        if deterministic:
            count = num_streams_for(count)
        return Layout(count * size, count)
    return Layout(num_cells)


def _check_deterministic(*, can_share: bool, is_offloaded: bool) -> None:
    """Raises `ModelError` where fixed batches are not enough for equal answers."""
    if not can_share:
        raise ModelError(
            "--deterministic does not fit this model: its sequences cannot give up their last "
            "tokens (recurrent, hybrid or sliding window)"
        )
    if is_offloaded:
        raise ModelError("--deterministic is for processors: set --gpu-layers 0, or leave it out")


AUTO: KvLayout = "unified"
"""What is taken on processors where both layouts can be had: streams only once they are measured to
be faster through the whole path."""
