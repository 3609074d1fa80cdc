"""Which layers of a model go to GPUs, so that it fits: what `--gpu-layers auto` stands for.

A pure function of sizes. What does not fit is given up in this order: first the experts of layers
go to host memory, from the first layer on (as llama.cpp's `--n-cpu-moe` counts), since a token
needs few of them, and then layers do, from the first on (as `--gpu-layers` counts). llama.cpp
divides the layers among GPUs by their shares (`llama_model::load_tensors`), so each of them has to
hold what falls to it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """`free` are the bytes that a model may take. Layers are divided by `share`."""

    name: str
    free: int
    share: float


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """What a layer takes: `near` has to lie where it is computed, `experts` need not."""

    near: int
    experts: int = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """What goes to GPUs: `gpu_layers` of the last, the output being one, and of them not the
    experts of the first `cpu_experts` layers. `needed` are bytes of each GPU.
    """

    gpu_layers: int
    cpu_experts: int
    needed: tuple[int, ...]


def fit(
    layers: Sequence[LayerBytes],
    output: int,
    gpus: Sequence[Gpu],
    *,
    compute: int,
    cpu_experts: int | None = None,
) -> Fit:
    """The first placement, in the order above, with which no GPU is overfull.

    Each GPU that has layers takes `compute` bytes besides. Where `cpu_experts` is given, it stays.
    """
    for gpu_layers, experts in _placements(layers, cpu_experts):
        needed = _needed(layers, output, gpus, compute, gpu_layers, experts)
        if all(size <= gpu.free for size, gpu in zip(needed, gpus, strict=True)):
            return Fit(gpu_layers, experts, needed)
    return Fit(0, cpu_experts or 0, (0,) * len(gpus))


def explain(found: Fit, layers: Sequence[LayerBytes], gpus: Sequence[Gpu]) -> str:
    """The placement in a sentence, for people."""
    if not found.gpu_layers:
        names = ", ".join(f"{gpu.name} ({_gib(gpu.free)} GiB)" for gpu in gpus)
        return f"no layer fits on {names}: all are in host memory"
    on_gpus = found.gpu_layers - 1  # and the output
    places = ", ".join(
        f"{gpu.name} ({_gib(size)} of {_gib(gpu.free)} GiB)"
        for gpu, size in zip(gpus, found.needed, strict=True)
        if size
    )
    said = f"{on_gpus} of {len(layers)} layers on {places}"
    first = len(layers) - on_gpus
    in_memory = sum(layer.experts > 0 for layer in layers[first : found.cpu_experts])
    return f"{said}, experts of {in_memory} of these in host memory" if in_memory else said


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f}"


def _placements(layers: Sequence[LayerBytes], cpu_experts: int | None) -> Iterator[tuple[int, int]]:
    """Layers on GPUs, and how many of the first have their experts in host memory."""
    every = len(layers) + 1
    with_experts = [number for number, layer in enumerate(layers, 1) if layer.experts]
    tried = [0, *with_experts] if cpu_experts is None else [cpu_experts]
    for experts in tried:
        yield every, experts
    for gpu_layers in range(every - 1, 0, -1):
        yield gpu_layers, tried[-1]


def _needed(
    layers: Sequence[LayerBytes],
    output: int,
    gpus: Sequence[Gpu],
    compute: int,
    gpu_layers: int,
    cpu_experts: int,
) -> tuple[int, ...]:
    """What each GPU takes."""
    needed = [0] * len(gpus)
    first = len(layers) + 1 - gpu_layers
    places = iter(_places([gpu.share for gpu in gpus], gpu_layers))
    for number, layer in enumerate(layers[first:], first):
        needed[next(places)] += layer.near + (layer.experts if number >= cpu_experts else 0)
    needed[next(places)] += output
    return tuple(size + compute if size else 0 for size in needed)


def _places(shares: Sequence[float], count: int) -> list[int]:
    """The GPU of each of `count` layers."""
    total = sum(shares) or 1.0
    ends = [sum(shares[: number + 1]) / total for number in range(len(shares))]
    return [
        next((number for number, end in enumerate(ends) if end > layer / count), len(shares) - 1)
        for layer in range(count)
    ]
