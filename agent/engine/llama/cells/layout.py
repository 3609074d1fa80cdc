"""Chooses the layout of the KV cache: one cache for all sequences, or one stream each.

On processors a step of many sequences is faster with streams: otherwise attention passes over every
cell in use. On GPUs this has not been measured.
"""

from dataclasses import dataclass

from .....shared.reports.model_info import KvLayout
from ...load_options import LoadOptions
from ...model_error import ModelError

_ROUNDING = 256
"""llama.cpp's streams have a multiple of this number of cells."""

TILE = 8
"""The fewest rows with which all of llama.cpp's matrix kernels on CPUs work as with more rows."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout of `num_cells` in total, in `num_streams`; 0 streams mean one cache for all."""

    num_cells: int
    num_streams: int = 0

    @property
    def name(self) -> KvLayout:
        """The layout's name in settings and views."""
        return "streams" if self.num_streams else "unified"


def num_streams_for(slots: int) -> int:
    """Return the number of streams for `slots`: groups must divide the rows of a tile."""
    if slots > TILE // 2:
        return -(-slots // TILE) * TILE
    return next(count for count in (1, 2, 4) if count >= slots)


def choose_layout(
    options: LoadOptions, *, can_share: bool, is_offloaded: bool, has_grid: bool = False
) -> Layout:
    """Return the layout for `options`.

    Models that cannot share prefixes use another form of state, which streams do not support.
    Pictures with positions in two dimensions (`has_grid`) have states that cannot be joined, so
    they exclude streams too. A `deterministic` engine always uses streams, with room for filling
    rows. Raises `ModelError` if streams are requested but not possible.
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
            "--kv-layout streams does not fit this model: its sequences cannot drop their last "
            "tokens (recurrent, hybrid or sliding window); leave it at auto"
        )
    if wanted == "streams" and has_grid:
        raise ModelError(
            "--kv-layout streams does not fit this projector: its pictures have positions in two "
            "dimensions; leave it at auto"
        )
    if wanted == "streams" and num_cells < least:
        raise ModelError(
            f"--kv-layout streams needs {slots} slots times {context_size} tokens of context: "
            f"raise --kv-cells {num_cells} to {least}, or set --kv-layout unified"
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
    """Raise `ModelError` if fixed batches do not suffice for equal answers."""
    if not can_share:
        raise ModelError(
            "--deterministic does not work with this model: its sequences cannot drop their last "
            "tokens (recurrent, hybrid or sliding window)"
        )
    if is_offloaded:
        raise ModelError("--deterministic works on processors only: set --gpu-layers 0, or omit it")


AUTO: KvLayout = "unified"
"""The layout on processors if both are possible.

It stays `unified` until streams are measured to be faster in the whole path.
"""
