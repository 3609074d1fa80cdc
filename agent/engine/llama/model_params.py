"""Converts the engine's options to llama.cpp's parameters for loading a model file.

The parameters are kept together with the objects to which they point. Options for GPUs are checked
as far as possible without a GPU, and a warning says that they have no effect.
"""

import ctypes
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llama_cpp.llama_cpp as llama_cpp

from ....shared.models.engine_options import (
    Metadata,
    devices_of,
    metadata_of,
    placements_of,
    shares_of,
)
from ....shared.reports.model_info import Kernels
from ..load_options import LoadOptions
from ..model_error import ModelError
from .devices import Devices, FoundDevice, loaded_devices

logger = logging.getLogger(__name__)

EXPERTS_OF = r"blk\.%d\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""Names of a layer's experts, as in llama.cpp's `--n-cpu-moe`."""

_SPLIT_MODES = {
    "none": llama_cpp.LLAMA_SPLIT_MODE_NONE,
    "layer": llama_cpp.LLAMA_SPLIT_MODE_LAYER,
    "row": llama_cpp.LLAMA_SPLIT_MODE_ROW,
}
_LOAD_MODES = {
    "auto": llama_cpp.LLAMA_LOAD_MODE_AUTO,
    "none": llama_cpp.LLAMA_LOAD_MODE_NONE,
    "mmap": llama_cpp.LLAMA_LOAD_MODE_MMAP,
    "mlock": llama_cpp.LLAMA_LOAD_MODE_MLOCK,
    "mmap+mlock": llama_cpp.LLAMA_LOAD_MODE_MMAP_MLOCK,
    "dio": llama_cpp.LLAMA_LOAD_MODE_DIRECT_IO,
}
_LOCKED = {"auto": "mmap+mlock", "mmap": "mmap+mlock", "none": "mlock"}
"""The load mode that `--mlock` turns each load mode into."""

_FOR_GPUS = (
    *("device", "gpu_layers", "split_mode", "tensor_split", "main_gpu"),
    *("n_cpu_moe", "kv_offload", "op_offload"),
)


class _Placement(ctypes.Structure):
    """`llama_model_tensor_buft_override`: the buffer type for tensors whose names match."""

    _fields_ = [("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p)]


@dataclass(frozen=True, slots=True)
class ModelParams:
    """llama.cpp's parameters of a model. `raw` is llama.cpp's struct and points into `kept`.

    Layers may be offloaded to `devices`.
    """

    raw: Any
    kept: tuple[Any, ...]
    devices: tuple[FoundDevice, ...]


def model_params(
    options: LoadOptions, kernels: Kernels, found: Devices | None = None
) -> ModelParams:
    """Return llama.cpp's defaults, changed by `options`.

    `found` defaults to the devices of the loaded library. Raises `ModelError` if `options` name an
    unknown device.
    """
    found = loaded_devices() if found is None else found
    raw = llama_cpp.llama_model_default_params()
    raw.n_gpu_layers = -1 if options.gpu_layers == "auto" else options.gpu_layers
    raw.use_extra_bufts = kernels == "all"
    raw.split_mode = _SPLIT_MODES[options.split_mode]
    raw.main_gpu = options.main_gpu
    raw.load_mode = _LOAD_MODES[_load_mode(options)]
    handles, devices = _chosen(options, found)
    _check_gpus(options, devices)
    kept: list[Any] = []
    if options.device is not None:
        kept.append((ctypes.c_void_p * (len(handles) + 1))(*handles))
        raw.devices = ctypes.addressof(kept[-1])
    if options.tensor_split is not None:
        kept.append(_shares(options.tensor_split))
        raw.tensor_split = kept[-1]
    if placements := _placements(options, found):
        kept.append((_Placement * (len(placements) + 1))(*placements))
        raw.tensor_buft_overrides = ctypes.addressof(kept[-1])
    if options.override_kv is not None:
        kept.append(_overrides(metadata_of(options.override_kv)))
        raw.kv_overrides = kept[-1]
    return ModelParams(raw, tuple(kept), devices)


def _load_mode(options: LoadOptions) -> str:
    return _LOCKED.get(options.load_mode, options.load_mode) if options.mlock else options.load_mode


def _chosen(options: LoadOptions, found: Devices) -> tuple[list[int], tuple[FoundDevice, ...]]:
    """Return the devices to offload to, with handles; by default the ones of llama.cpp."""
    gpus = found.gpus()
    if options.device is None:
        remote = [each for each in gpus if each[1].is_remote]
        own = [each for each in gpus if not each[1].is_remote]
        has_gpu = any(device.kind == "gpu" for _, device in own)
        gpus = remote + [each for each in own if each[1].kind == "gpu" or not has_gpu]
        return [handle for handle, _ in gpus], tuple(device for _, device in gpus)
    by_name = {device.name: (handle, device) for handle, device in gpus}
    names = devices_of(options.device)
    for name in names:
        if name not in by_name:
            raise ModelError(
                f"--device: there is no {name}; llama.cpp finds {_listed(by_name)} here; with "
                "none the CPU computes alone"
            )
    chosen = [by_name[name] for name in names]
    return [handle for handle, _ in chosen], tuple(device for _, device in chosen)


def _check_gpus(options: LoadOptions, devices: Sequence[FoundDevice]) -> None:
    """Raise `ModelError` if options for GPUs do not match the GPUs; warn if there are no GPUs."""
    names = [device.name for device in devices]
    shares = () if options.tensor_split is None else shares_of(options.tensor_split)
    most = int(llama_cpp.llama_max_devices())
    if len(shares) > most:
        raise ModelError(
            f"--tensor-split has {len(shares)} shares; llama.cpp accepts at most {most}"
        )
    if not names:
        if options.device is None and (idle := _idle(options)):
            logger.warning("%s: no effect, since llama.cpp finds no GPU here", ", ".join(idle))
        return
    if len(shares) > len(names):
        raise ModelError(
            f"--tensor-split has {len(shares)} shares for {len(names)} devices: {_listed(names)}"
        )
    if options.main_gpu >= len(names):
        raise ModelError(
            f"--main-gpu must be less than {len(names)}, not {options.main_gpu}: the devices are "
            f"{_listed(names)}"
        )


def _idle(options: LoadOptions) -> list[str]:
    """Return the options for GPUs that are set, though they have no effect."""
    fields = LoadOptions.model_fields
    return [
        "--" + name.replace("_", "-")
        for name in _FOR_GPUS
        if getattr(options, name) != fields[name].default
        and not (name == "gpu_layers" and options.gpu_layers in (0, -1))
    ]


def _listed(names: Sequence[str] | dict[str, Any]) -> str:
    return ", ".join(names) or "no GPU"


def _shares(text: str) -> Any:
    return (ctypes.c_float * int(llama_cpp.llama_max_devices()))(*shares_of(text))


def _placements(options: LoadOptions, found: Devices) -> list[_Placement]:
    """Return patterns and buffer types; explicit patterns come first."""
    wanted = () if options.override_tensor is None else placements_of(options.override_tensor)
    wanted += tuple((EXPERTS_OF % layer, "CPU") for layer in range(options.n_cpu_moe))
    types = found.buffer_types() if wanted else {}
    for _, name in wanted:
        if name not in types:
            raise ModelError(
                f"--override-tensor: tensors cannot be put into {name}; possible here: "
                f"{_listed(types)}"
            )
    return [_Placement(pattern.encode(), types[name]) for pattern, name in wanted]


def _overrides(metadata: dict[str, Metadata]) -> Any:
    """Return an array of `llama_model_kv_override` that ends with an empty entry."""
    array: Any = (llama_cpp.llama_model_kv_override * (len(metadata) + 1))()
    for entry, (key, value) in zip(array, metadata.items(), strict=False):
        entry.key = key.encode()
        match value:
            case bool():
                entry.tag, entry.value.val_bool = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_BOOL, value
            case int():
                entry.tag, entry.value.val_i64 = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_INT, value
            case float():
                entry.tag, entry.value.val_f64 = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_FLOAT, value
            case str():
                entry.tag = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_STR
                entry.value.val_str = value.encode()
    return array
