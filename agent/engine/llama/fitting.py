"""The options that `--fit` chooses for a model file on this host, for its devices and memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ....shared.models.assignments import HOST
from ...gguf.choice import Fitted, chosen
from ...gguf.header import HeaderError
from ...gguf.memory_estimate import read_sizes
from ...host_facts import available_memory, total_memory
from ..load_options import LoadOptions
from .devices import FoundDevice
from .model_params import model_params


def fitted(
    path: Path, options: LoadOptions, share: float = 1.0, beside: Mapping[str, int] = {}
) -> Fitted | None:
    """Return the options for the model at `path`, which may use a `share` of the free memory.

    `beside` is the memory of other engines: it does not count as free, even before they have
    filled it. Returns `None` if the header lacks information. Raises `ModelError` if `options`
    name an unknown device.
    """
    devices = [_less(device, beside) for device in devices_for(options)]
    try:
        file = read_sizes(path)
        return chosen(file, options, devices, host=_free_on_host(beside), share=share)
    except (HeaderError, OSError, ValueError):
        return None  # loading them, or what is beside them, says what is wrong


def _less(device: FoundDevice, beside: Mapping[str, int]) -> FoundDevice:
    left = max(0, device.memory - beside.get(device.name, 0))
    return replace(device, free=min(device.free, left))


def _free_on_host(beside: Mapping[str, int]) -> int | None:
    free, total = available_memory(), total_memory()
    if free is None or total is None:
        return free
    return min(free, max(0, total - beside.get(HOST, 0)))


def devices_for(options: LoadOptions) -> Sequence[FoundDevice]:
    """Return the devices for layers. Raises `ModelError` if `options` name an unknown one."""
    return model_params(_unplaced(options), "plain").devices if _may_offload(options) else ()


def _may_offload(options: LoadOptions) -> bool:
    return options.gpu_layers != 0


def _unplaced(options: LoadOptions) -> LoadOptions:
    return options.model_copy(update={"gpu_layers": 0})
