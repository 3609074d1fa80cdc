"""The options of `--fit` for a model file, from its header, the devices and the free memory.

`fit.py` makes the choice; this module converts sizes, devices and options to its numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ...shared.models.assignments import HOST
from ...shared.models.engine_options import CacheType, cache_bytes, shares_of
from ..engine.load_options import LoadOptions
from .fit import Fit, Gpu, Sizes, Wanted, cache_in_words, fit, place_in_words
from .header import GgufHeader
from .memory_estimate import ModelFileSizes, bytes_beside, estimate

COMFORT = 2**15
"""Cells that all slots get together if memory allows: room for one long and some short texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A complete choice: every option is set in `options`, and described in `said`.

    `fit` is the choice. `held` maps each device and the host to the bytes that the model takes
    there.
    """

    options: LoadOptions
    said: str
    fit: Fit
    held: Mapping[str, int]


class FreeDevice(Protocol):
    """A device that layers can be offloaded to, with `free` bytes of memory."""

    @property
    def name(self) -> str: ...

    @property
    def free(self) -> int: ...


def chosen(
    file: ModelFileSizes,
    options: LoadOptions,
    devices: Sequence[FreeDevice],
    *,
    host: int | None,
    share: float = 1.0,
) -> Fitted | None:
    """Return `options` with all open values chosen so that the model fits on `devices`.

    `host` is the free memory of the host in bytes; `None` if unknown. The model may take the
    fraction `share` of the free memory. Returns `None` if the header lacks information.
    """
    sizes = _sizing(file, options)
    if sizes is None:
        return None
    wanted = _wanted(options, longest_context(file.header, options), has_gpu=bool(devices))
    gpus = _gpus(options, devices, share)
    kept = 0 if devices else options.fit_target
    host_free = 2**62 if host is None else int(max(0, host - kept) * share)
    found = fit(sizes, gpus, host_free, wanted)
    result = _resolved(found, options, longest_context(file.header, options), bool(devices))
    layers = sizes(found.cells, found.is_smaller).layers
    types = " and ".join(dict.fromkeys((result.cache_type_k, result.cache_type_v)))
    place = place_in_words(found, layers, gpus, found.host if host is None else host_free)
    cache = cache_in_words(
        types=types,
        slots=result.slots,
        context_size=result.slot_tokens,
        cells=result.num_cells,
    )
    on_devices = zip((each.name for each in devices), found.needed, strict=True)
    held = {HOST: found.host} | {name: size for name, size in on_devices if size}
    return Fitted(options=result, said=f"{place}, {cache}", fit=found, held=held)


@dataclass(frozen=True, slots=True)
class EmptyDevice:
    """A device without any model on it; `free` is its memory in bytes."""

    name: str
    free: int


def claims(
    file: ModelFileSizes, options: LoadOptions, devices: Sequence[FreeDevice], host: int
) -> dict[str, int] | None:
    """Return the bytes that must be free to load the model, by device name and `HOST`.

    The result is for the model alone on `devices` and `host` bytes of memory, with the smallest
    context in each slot, plus the margin that the model leaves free on a device. Returns `None` if
    the header lacks information. Raises `HeaderError` and `OSError` for a draft model.
    """
    sizes = _sizing(file, options)
    if sizes is None:
        return None
    used = devices if options.gpu_layers != 0 else ()
    longest = longest_context(file.header, options)
    cells = options.num_cells
    wanted = replace(_wanted(options, longest, has_gpu=bool(used)), usual=cells, most=cells)
    wanted = replace(wanted, least=min(wanted.least, cells))
    found = fit(sizes, _gpus(options, used, 1.0), host, wanted)
    margin = 0 if found.is_tight else options.fit_target
    on_devices = zip(used, found.needed, strict=True)
    return {HOST: found.host} | {each.name: size + margin for each, size in on_devices if size}


def longest_context(header: GgufHeader, options: LoadOptions) -> int:
    """Return the longest context that the model was trained for, with RoPE scaling applied.

    If the header does not say, return the shortest context that may be chosen.
    """
    trained = header.number("context_length") or options.fit_ctx
    kind = options.rope_scaling or header.metadata.get(f"{header.architecture}.rope.scaling.type")
    if options.rope_scale is not None and kind not in ("none", "yarn"):
        factor = header.metadata.get(f"{header.architecture}.rope.scaling.factor")
        own = 1 / factor if isinstance(factor, float) and factor > 0 else 1.0
        trained = int(trained * max(1.0, options.rope_scale * own))
    return max(16, min(trained, 2**24))


def _has_streams(options: LoadOptions) -> bool:
    """Return whether each slot has cells of its own."""
    return options.deterministic or options.kv_layout == "streams"


def _wanted(options: LoadOptions, longest: int, *, has_gpu: bool) -> Wanted:
    """Return the cells that may be chosen, and the parts of the placement that are set."""
    slots = options.slots
    if options.kv_cells != "auto":
        usual = least = most = options.kv_cells
    elif options.context_size != "auto":
        usual = most = slots * options.context_size
        least = usual if _has_streams(options) else options.context_size
    else:
        short = min(options.fit_ctx, longest)
        least = slots * short if _has_streams(options) else short
        usual = max(least, min(slots * longest, max(COMFORT, slots * short)))
        most = max(usual, min(slots * longest, max(longest, slots * COMFORT)))
    layers = None if options.gpu_layers == "auto" else options.gpu_layers
    if layers == -1 or (layers is None and options.override_tensor is not None):
        layers = 2**20  # all there are; what patterns leave goes to GPUs as a whole
    return Wanted(
        usual=usual,
        least=min(least, usual),
        most=most if has_gpu else usual,
        can_be_smaller=_smaller_type(options) is not None,
        gpu_layers=layers,
        cpu_experts=options.n_cpu_moe or (0 if options.override_tensor is not None else None),
    )


def _smaller_type(options: LoadOptions) -> CacheType | None:
    """Return the smaller cache type that `--fit` may choose; `None` if it may not."""
    given = options.fit_cache_type
    if given is None or cache_bytes(32, given) >= cache_bytes(32, options.cache_type_k):
        return None
    return given


def _gpus(options: LoadOptions, devices: Sequence[FreeDevice], share: float) -> list[Gpu]:
    """Return each GPU's memory and share of the layers, divided as in llama.cpp."""
    given = shares_of(options.tensor_split) if options.tensor_split is not None else ()
    gpus = []
    for number, each in enumerate(devices):
        part = float(each.free)
        if given:
            part = given[number] if number < len(given) else 0.0
        if options.split_mode == "none":
            part = float(number == options.main_gpu)
        free = int(max(0, each.free - options.fit_target) * share)
        gpus.append(Gpu(each.name, free, part))
    return gpus


def _resolved(found: Fit, options: LoadOptions, longest: int, has_gpu: bool) -> LoadOptions:
    cells, slots = found.cells, options.slots
    tokens = options.context_size
    if tokens == "auto":
        tokens = min(longest, cells // slots if _has_streams(options) else cells)
    update: dict[str, object] = {"context_size": tokens, "kv_cells": cells}
    if options.gpu_layers == "auto" and options.override_tensor is None:
        update |= {"gpu_layers": found.gpu_layers if has_gpu else 0}
    elif options.gpu_layers == "auto":
        update |= {"gpu_layers": -1}
    if has_gpu and options.n_cpu_moe == 0:
        update |= {"n_cpu_moe": found.cpu_experts}
    if found.is_smaller:
        update |= {"cache_type_k": options.fit_cache_type, "cache_type_v": options.fit_cache_type}
    return options.model_copy(update=update)


class _Sizing:
    """Computes the model's memory for a number of cells, of the usual or the smaller type."""

    def __init__(self, file: ModelFileSizes, options: LoadOptions, beside: int) -> None:
        self._file = file
        self._options = options
        self._beside = beside

    def __call__(self, cells: int, is_smaller: bool) -> Sizes:
        options = self._with(cells, is_smaller)
        found = estimate(self._file, options, beside=self._beside)
        if found is None:
            raise ValueError("the header says too little")
        return found.sizes(options)

    def _with(self, cells: int, is_smaller: bool) -> LoadOptions:
        """Return the options with this number of cells.

        If no context is set, the estimate for embeddings assumes the shortest context.
        """
        options = self._options
        update: dict[str, object] = {"kv_cells": cells}
        if options.context_size == "auto":
            update["context_size"] = min(options.fit_ctx, cells)
        if is_smaller:
            update |= dict.fromkeys(("cache_type_k", "cache_type_v"), options.fit_cache_type)
        return options.model_copy(update=update)


def _sizing(file: ModelFileSizes, options: LoadOptions) -> _Sizing | None:
    """Return the function; `None` if a header lacks information. Raises the errors of
    `bytes_beside`.
    """
    beside = bytes_beside(options)
    if beside is None or estimate(file, options) is None:
        return None
    return _Sizing(file, options, beside)
