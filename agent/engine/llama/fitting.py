"""What `--fit` chooses for a model file on this host, with the devices and the memory of now."""

from collections.abc import Sequence
from pathlib import Path

from ...gguf.choice import Fitted, chosen, read_sizes
from ...gguf.header import HeaderError
from ...host_facts import available_memory
from ..load_options import LoadOptions
from .devices import FoundDevice
from .model_params import model_params


def fitted(path: Path, options: LoadOptions, share: float = 1.0) -> Fitted | None:
    """What `options` become for the model at `path`, with a `share` of the memory that is free.

    `None` where its header says too little. Raises `ModelError` where `options` name a device that
    there is not.
    """
    devices = devices_for(options)
    try:
        file = read_sizes(path)
        return chosen(file, options, devices, host=available_memory(), share=share)
    except (HeaderError, OSError, ValueError):
        return None  # loading them, or what is beside them, says what is wrong


def devices_for(options: LoadOptions) -> Sequence[FoundDevice]:
    """Those that layers may go to. Raises `ModelError` where `options` name one there is not."""
    return model_params(_unplaced(options), "plain").devices if _may_offload(options) else ()


def _may_offload(options: LoadOptions) -> bool:
    return options.gpu_layers != 0


def _unplaced(options: LoadOptions) -> LoadOptions:
    return options.model_copy(update={"gpu_layers": 0})
