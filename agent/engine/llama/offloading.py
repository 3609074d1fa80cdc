"""What `--gpu-layers auto` stands for: the layers that GPUs are likely to hold.

It goes by the sizes in the file's header and the memory that is free now, and leaves a margin for
other programs. Nothing is tried: where it says too much, loading fails and says so.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from ....shared.models.engine_options import cache_bytes, shares_of
from ...gguf.fit import Fit, Gpu, LayerBytes, explain, fit
from ...gguf.header import GgufHeader, HeaderError, read_header
from ...gguf.memory_estimate import CELL_BLOCK, estimate
from ...gguf.model_shape import LayerShape, ModelShape, shape_of
from ...gguf.split_files import files_of
from ..load_options import LoadOptions
from ..model_error import ModelError
from .cells.layout import choose_layout
from .devices import FoundDevice
from .model_params import model_params

logger = logging.getLogger(__name__)

MARGIN = 2**30
"""Bytes of each GPU that are left free."""


def with_layers_that_fit(path: Path, options: LoadOptions) -> LoadOptions:
    """`options` with a number of layers where they have `auto`. Raises `ModelError`.

    Of a mixture of experts these go to host memory before whole layers do, unless `--n-cpu-moe`
    says how many. What `--override-tensor` leaves goes to GPUs as a whole.
    """
    if options.gpu_layers != "auto":
        return options
    none = options.model_copy(update={"gpu_layers": 0})
    devices = model_params(none, "plain").devices
    if not devices:
        return none
    if options.override_tensor is not None:
        return options.model_copy(update={"gpu_layers": -1})
    found, said = placed(path, options, devices)
    logger.info("--gpu-layers auto: %s", said)
    return options.model_copy(
        update={"gpu_layers": found.gpu_layers, "n_cpu_moe": found.cpu_experts}
    )


def placed(path: Path, options: LoadOptions, devices: Sequence[FoundDevice]) -> tuple[Fit, str]:
    """Where the model at `path` fits on `devices`, and that in words. Raises `ModelError`."""
    header, sizes, num_bytes = _read(path)
    shape = shape_of(header, sizes)
    needed = estimate(header, options, file_bytes=num_bytes)
    if shape is None or needed is None:
        raise ModelError(
            f"model file {path} does not say how many layers it has: set --gpu-layers to a number"
        )
    gpus = _gpus(options, devices)
    layers = [
        LayerBytes(each.dense + _cache(each, shape, options), each.experts) for each in shape.layers
    ]
    found = fit(
        layers,
        shape.output,
        gpus,
        compute=needed.compute + needed.embeddings,
        cpu_experts=options.n_cpu_moe or None,
    )
    return found, explain(found, layers, gpus)


def _gpus(options: LoadOptions, devices: Sequence[FoundDevice]) -> list[Gpu]:
    """What each GPU has for the model, and its share, as llama.cpp divides layers."""
    given = shares_of(options.tensor_split) if options.tensor_split is not None else ()
    gpus = []
    for number, each in enumerate(devices):
        share = float(each.free)
        if given:
            share = given[number] if number < len(given) else 0.0
        if options.split_mode == "none":
            share = float(number == options.main_gpu)
        gpus.append(Gpu(each.name, max(0, each.free - MARGIN), share))
    return gpus


def _cache(layer: LayerShape, shape: ModelShape, options: LoadOptions) -> int:
    """Bytes of a layer's cells and states that lie with it."""
    if not options.kv_offload:
        return 0
    cells = choose_layout(options, can_share=True, is_offloaded=True).num_cells
    if layer.has_window and options.swa_full == "off":
        cells = min(cells, options.slots * shape.window + options.ubatch_size)
    cells = -(-cells // CELL_BLOCK) * CELL_BLOCK
    cell = cache_bytes(layer.keys, options.cache_type_k)
    cell += cache_bytes(layer.values, options.cache_type_v)
    num_states = (2 * options.slots + 1) * (1 + options.max_draft)
    return cells * cell + num_states * layer.state


def _read(path: Path) -> tuple[GgufHeader, dict[str, int], int]:
    """The first file's header, the sizes of the tensors of all files, and bytes of all files."""
    sizes: dict[str, int] = {}
    num_bytes = 0
    headers = []
    try:
        for part in map(Path, files_of(str(path))):
            with part.open("rb") as file:
                headers.append(read_header(file))
            sizes |= headers[-1].tensor_bytes(part.stat().st_size)
            num_bytes += part.stat().st_size
    except (HeaderError, OSError, ValueError) as error:
        raise ModelError(f"model file {path} cannot be read: {error}") from error
    return headers[0], sizes, num_bytes
