"""Chooses a model's placement on GPUs and its KV cache so that both fit.

This is a pure function of sizes. If the model does not fit, it takes these steps in order:

- The experts of layers move to host memory, from the first layer on (as `--n-cpu-moe` counts),
  since a token needs few experts.
- Layers move to host memory, from the first layer on (as `--gpu-layers` counts).
- The KV cache gets a smaller type, if that is allowed.
- The KV cache gets fewer cells.

Remaining memory goes to the KV cache. llama.cpp divides the layers among GPUs by their shares
(`llama_model::load_tensors`), so each GPU must hold the layers that it gets.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

CELL_BLOCK = 256
"""Cells by which a cache grows: llama.cpp rounds up to multiples of this number."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU. `free` is the memory in bytes that a model may take. Layers are divided by `share`."""

    name: str
    free: int
    share: float


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """The bytes of a layer: `near` must be on the layer's device, `experts` need not be."""

    near: int
    experts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The bytes of a model with its KV cache, which is counted in the layers.

    `compute` is needed on each device that computes layers; `host` is always in host memory.
    """

    layers: tuple[LayerBytes, ...]
    output: int
    compute: int
    host: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The usual, minimum and maximum cells of the KV cache.

    `gpu_layers` and `cpu_experts` are fixed if they are set.
    """

    usual: int
    least: int
    most: int
    can_be_smaller: bool = False
    gpu_layers: int | None = None
    cpu_experts: int | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """A placement. The last `gpu_layers` layers are on GPUs; the output counts as one layer.

    The experts of the first `cpu_experts` layers are in host memory. `needed` are the bytes on
    each GPU, `host` the bytes on the host. The KV cache has `cells`, of the smaller type if
    `is_smaller`. If even the smallest choice does not fit, at least `missing` bytes are lacking.
    """

    gpu_layers: int
    cpu_experts: int
    needed: tuple[int, ...]
    host: int
    cells: int
    is_smaller: bool = False
    missing: int = 0

    @property
    def is_tight(self) -> bool:
        """Return whether the placement exceeds the free memory."""
        return self.missing > 0


SizesWith = Callable[[int, bool], Sizes]
"""Returns the model's sizes for a number of cells. The second argument asks for the
smaller type.
"""


def fit(sizes: SizesWith, gpus: Sequence[Gpu], host_free: int, wanted: Wanted) -> Fit:
    """Return the first placement, in the order above, that fits on every GPU and on the host."""
    for cells, is_smaller in _caches(wanted):
        found = _placed(sizes(cells, is_smaller), gpus, host_free, wanted)
        if found is not None:
            found = replace(found, cells=cells, is_smaller=is_smaller)
            return _grown(found, sizes, gpus, host_free, wanted)
    cells, is_smaller = wanted.least, wanted.can_be_smaller
    size = sizes(cells, is_smaller)
    places = list(_placements(size.layers, wanted, bool(gpus)))
    gpu_layers, cpu_experts = places[-1]
    needed = _needed(size, gpus, gpu_layers, cpu_experts)
    host = _on_host(size, gpu_layers, cpu_experts)
    missing = min(_missing(size, gpus, host_free, place) for place in places)
    return Fit(gpu_layers, cpu_experts, needed, host, cells, is_smaller, missing)


def _caches(wanted: Wanted) -> Iterator[tuple[int, bool]]:
    """Yield numbers of cells in order of preference, each with whether the type is the smaller
    one.
    """
    yield wanted.usual, False
    if wanted.can_be_smaller:
        yield wanted.usual, True
    cells = wanted.usual
    while cells > wanted.least:
        cells = max(wanted.least, cells // 2 // CELL_BLOCK * CELL_BLOCK)
        yield cells, wanted.can_be_smaller


def _grown(
    found: Fit, sizes: SizesWith, gpus: Sequence[Gpu], host_free: int, wanted: Wanted
) -> Fit:
    """Return the placement with as many more cells as fit into memory."""
    most = wanted.most if found.cells == wanted.usual and not found.is_smaller else wanted.usual
    there = replace(wanted, gpu_layers=found.gpu_layers, cpu_experts=found.cpu_experts)
    low, high = 0, max(0, most - found.cells) // CELL_BLOCK
    while low < high:
        middle = (low + high + 1) // 2
        cells = found.cells + middle * CELL_BLOCK
        if _placed(sizes(cells, found.is_smaller), gpus, host_free, there) is None:
            high = middle - 1
        else:
            low = middle
    cells = found.cells + low * CELL_BLOCK
    best = _placed(sizes(cells, found.is_smaller), gpus, host_free, there)
    return found if best is None else replace(best, cells=cells, is_smaller=found.is_smaller)


def _placed(size: Sizes, gpus: Sequence[Gpu], host_free: int, wanted: Wanted) -> Fit | None:
    """Return the first placement in the order above that fits, or `None`."""
    for gpu_layers, cpu_experts in _placements(size.layers, wanted, bool(gpus)):
        needed = _needed(size, gpus, gpu_layers, cpu_experts)
        host = _on_host(size, gpu_layers, cpu_experts)
        is_overfull = any(each > gpu.free for each, gpu in zip(needed, gpus, strict=True))
        if not is_overfull and host <= host_free:
            return Fit(gpu_layers, cpu_experts, needed, host, 0)
    return None


def _placements(
    layers: Sequence[LayerBytes], wanted: Wanted, has_gpu: bool
) -> Iterator[tuple[int, int]]:
    """Yield pairs: layers on GPUs, and first layers whose experts are in host memory."""
    every = len(layers) + 1
    given = wanted.cpu_experts
    with_experts = [number for number, layer in enumerate(layers, 1) if layer.experts]
    tried = [0, *with_experts] if given is None else [given]
    if not has_gpu:
        yield 0, given or 0
        return
    if wanted.gpu_layers is not None:
        yield from ((min(wanted.gpu_layers, every), experts) for experts in tried)
        return
    yield from ((every, experts) for experts in tried)
    yield from ((gpu_layers, tried[-1]) for gpu_layers in range(every - 1, 0, -1))
    yield 0, given or 0


def _needed(size: Sizes, gpus: Sequence[Gpu], gpu_layers: int, cpu_experts: int) -> tuple[int, ...]:
    """Return the bytes on each GPU."""
    needed = [0] * len(gpus)
    if not gpu_layers or not gpus:
        return tuple(needed)
    first = len(size.layers) + 1 - gpu_layers
    places = iter(_places([gpu.share for gpu in gpus], gpu_layers))
    for number, layer in enumerate(size.layers[first:], first):
        needed[next(places)] += layer.near + (layer.experts if number >= cpu_experts else 0)
    needed[next(places)] += size.output
    return tuple(each + size.compute if each else 0 for each in needed)


def bytes_on_gpus(size: Sizes, gpu_layers: int, cpu_experts: int) -> int:
    """Return the bytes on all GPUs together, if they were one device."""
    return _needed(size, [Gpu("", 0, 1.0)], gpu_layers, cpu_experts)[0]


def _missing(size: Sizes, gpus: Sequence[Gpu], host_free: int, place: tuple[int, int]) -> int:
    """Return the bytes that GPUs and host lack together."""
    needed = _needed(size, gpus, *place)
    over = sum(max(0, each - gpu.free) for each, gpu in zip(needed, gpus, strict=True))
    return over + max(0, _on_host(size, *place) - host_free)


def _on_host(size: Sizes, gpu_layers: int, cpu_experts: int) -> int:
    """Return the bytes in host memory."""
    first = max(0, len(size.layers) + 1 - gpu_layers)
    needed = size.host
    for number, layer in enumerate(size.layers):
        if number < first:
            needed += layer.near + layer.experts
        elif number < cpu_experts:
            needed += layer.experts
    if first:
        needed += size.compute
    return needed if gpu_layers else needed + size.output


def _places(shares: Sequence[float], count: int) -> list[int]:
    """Return the GPU of each of `count` layers."""
    total = sum(shares) or 1.0
    ends = [sum(shares[: number + 1]) / total for number in range(len(shares))]
    return [
        next((number for number, end in enumerate(ends) if end > layer / count), len(shares) - 1)
        for layer in range(count)
    ]


# ---- in words


def place_in_words(
    found: Fit, layers: Sequence[LayerBytes], gpus: Sequence[Gpu], host_free: int
) -> str:
    """Describe where the model is, for people."""
    if not gpus:
        said = f"in memory ({_gib(found.host)} of {_gib(host_free)} GiB)"
        return f"{len(layers)} layers {said}"
    if not found.gpu_layers:
        names = ", ".join(f"{gpu.name} ({_gib(gpu.free)} GiB)" for gpu in gpus)
        return f"no layer on {names}: all {len(layers)} in memory"
    on_gpus = found.gpu_layers - 1  # and the output
    places = ", ".join(
        f"{gpu.name} ({_gib(size)} of {_gib(gpu.free)} GiB)"
        for gpu, size in zip(gpus, found.needed, strict=True)
        if size
    )
    said = f"{on_gpus} of {len(layers)} layers on {places}"
    first = len(layers) - on_gpus
    in_memory = sum(layer.experts > 0 for layer in layers[first : found.cpu_experts])
    return f"{said}, experts of {in_memory} layers in memory" if in_memory else said


def cache_in_words(*, types: str, slots: int, context_size: int, cells: int) -> str:
    """Describe the cache and the slots, for people."""
    each = f"{slots} slot{'s' * (slots > 1)} of {context_size:,}"
    shared = f" that share {cells:,}" if cells < slots * context_size else ""
    return f"cache {types}, {each}{shared}"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f}"
