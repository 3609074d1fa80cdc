"""How many layers GPUs are likely to hold: what `--gpu-layers auto` stands for.

It goes by the size of the file and the memory that is free now, and leaves a margin for what is
computed. Nothing is tried: where it says too much, loading fails and says so.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from ..load_options import LoadOptions
from .devices import FoundDevice
from .model import Model
from .model_params import model_params

logger = logging.getLogger(__name__)

MARGIN = 2**30
"""Bytes of each GPU that are left free: for buffers of what is computed, and for other programs."""


def with_layers_that_fit(path: Path, options: LoadOptions) -> LoadOptions:
    """`options` with a number of layers where they have `auto`. Raises `ModelError`.

    What `--n-cpu-moe` and `--override-tensor` leave goes to GPUs as a whole.
    """
    if options.gpu_layers != "auto":
        return options
    none = options.model_copy(update={"gpu_layers": 0})
    devices = model_params(none, "plain").devices
    if not devices:
        return none
    if options.n_cpu_moe or options.override_tensor is not None:
        return options.model_copy(update={"gpu_layers": -1})
    model = Model(path, none, has_weights=False)
    cells = options.kv_cells or options.slots * options.context_size
    cache = cells * model.cell_bytes(options) if options.kv_offload else 0
    num_layers, num_weights = model.num_layers, model.size_bytes
    model.free()
    fitting = num_layers_in(devices, num_layers=num_layers, num_bytes=num_weights + cache)
    logger.info(
        "--gpu-layers auto: %d of %d layers (the last is the output) are offloaded to %s",
        fitting,
        num_layers + 1,
        ", ".join(f"{each.name} ({each.free / 2**30:.1f} GiB free)" for each in devices),
    )
    return options.model_copy(update={"gpu_layers": fitting})


def num_layers_in(devices: Sequence[FoundDevice], *, num_layers: int, num_bytes: int) -> int:
    """How many of the layers and the output, which have `num_bytes` together, `devices` hold.

    A layer is on one device, whose rest stays free.
    """
    num_parts = num_layers + 1
    part = max(1, -(-num_bytes // num_parts))
    return min(num_parts, sum(max(0, each.free - MARGIN) // part for each in devices))
