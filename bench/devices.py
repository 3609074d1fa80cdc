"""A model on devices, by how it is split and what its cache is made of: `python -m bench.devices`.

Each way gets an agent of its own, in turn. The figures are the seconds until the agent is ready,
and those of streams with short prompts that run together. Ratios are within a round, to the way
without any device or, for the cache and experts, on one.

Without `--device` the devices are other processes on this machine (`tests/rpc_device.py`), with a
thread each: that shows what splitting costs, and not what a GPU brings. With `--device` they are
the host's own, such as `CUDA0,CUDA1`.
"""

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import prompts, ways
from bench.figures import (
    BETWEEN_TOKENS,
    FIRST_TOKEN,
    TOKENS_PER_SECOND,
    Rounds,
    check,
    median_of,
    of_burst,
    ratio,
    shown,
)
from bench.harness import Flags, finished, in_turn, print_table, save
from bench.models import Q06
from bench.sides import Load, start_ours
from bench.small_models import write
from tests.rpc_device import RpcDevice

SLOTS, CONTEXT = 4, 1024
LARGE, SMALL = 4 * 2**30, 2**29
"""Bytes of a device that another process stands in for: all of the model, or less than half."""

LOADING = "time to load"
SHOWN = (LOADING, TOKENS_PER_SECOND, FIRST_TOKEN, BETWEEN_TOKENS)
COMPARED = (TOKENS_PER_SECOND, BETWEEN_TOKENS)
MIXTURE = "qwen3moe"
"""The architecture of `bench.small_models` that has experts."""


@dataclass(frozen=True, slots=True)
class Way:
    """`devices` are used, by their memory; `settings` are the agent's.

    `baseline` is the way that it is compared with. `is_mixture`: of a small model with experts.
    """

    name: str
    devices: tuple[int, ...] = ()
    settings: dict[str, object] = field(default_factory=dict)
    baseline: str = "CPU alone"
    is_mixture: bool = False


ONE, MIXED = "one device", "a mixture, one device"


def _of_cache(kind: str) -> Way:
    settings: dict[str, object] = {"cache_type_k": kind, "cache_type_v": kind}
    return Way(f"one device, {kind} cache", (LARGE,), settings, ONE)


WAYS = (
    Way("CPU alone", (), {"device": "none"}),
    Way(ONE, (LARGE,)),
    Way("two devices, alike", (LARGE, LARGE), {"tensor_split": "1,1"}, ONE),
    Way("two devices, 8:1", (LARGE, SMALL), {}, ONE),
    _of_cache("q8_0"),
    _of_cache("q4_0"),
    Way(MIXED, (LARGE,), {}, MIXED, is_mixture=True),
    Way("a mixture, experts in memory", (LARGE,), {"n_cpu_moe": 99}, MIXED, is_mixture=True),
)


async def measure(way: Way, load: Load, settings: dict[str, object], seed: int) -> dict[str, float]:
    """Raises `RequestsFailed`."""
    async with AsyncExitStack() as stack:
        began = time.monotonic()
        side = await start_ours(stack, load, **(settings | way.settings))
        ready = time.monotonic() - began
        warm_up = prompts.uniform(-seed, SLOTS, num_words=8, num_tokens=2)
        check(await ways.continuous(side.client, warm_up, size=SLOTS))
        requests = prompts.uniform(seed, 2 * SLOTS, num_words=64, num_tokens=32)
        samples = await ways.continuous(side.client, requests, size=SLOTS)
        return {LOADING: ready, **of_burst(samples)}


async def run(given: argparse.Namespace, devices: tuple[str, ...]) -> Rounds:
    """Raises `RequestsFailed`."""
    possible = [way for way in WAYS if not devices or len(way.devices) <= len(devices)]
    rounds: Rounds = {way.name: [] for way in possible}
    with TemporaryDirectory() as folder:
        mixture = write(MIXTURE, Path(folder) / "mixture.gguf")
        for number, way in in_turn(possible, given.rounds):
            load = Load(mixture if way.is_mixture else given.model, SLOTS, CONTEXT, given.threads)
            with ExitStack() as stack:
                found = await measure(way, load, _settings(way, devices, stack), number)
            rounds[way.name].append(found)
            told = ", ".join(f"{name} {shown(name, found[name])}" for name in SHOWN)
            print(f"{number}, {way.name}: {told}", flush=True)
    return rounds


def _settings(way: Way, devices: tuple[str, ...], stack: ExitStack) -> dict[str, object]:
    """Those that name the way's devices; stand-ins last as long as `stack`."""
    if not way.devices:
        return {}
    if devices:
        return {"device": ",".join(devices[: len(way.devices)])}
    started = [stack.enter_context(RpcDevice(memory)) for memory in way.devices]
    return {"rpc": ",".join(device.address for device in started)}


def rows(rounds: Rounds) -> Iterator[list[str]]:
    """One row for each way: medians, and ratios to its baseline."""
    for way in WAYS:
        if own := rounds.get(way.name):
            medians = (shown(name, median_of(own, name)) for name in SHOWN)
            baseline = rounds[way.baseline]
            ratios = ("" if own is baseline else str(ratio(own, baseline, n)) for n in COMPARED)
            yield [way.name, *medians, *ratios]


def main() -> None:
    flags = Flags("devices", __doc__)
    help = "the host's own, with commas; stand-ins without it"
    flags.add_argument("--device", default="", help=help)
    flags.file(Q06.path)
    flags.rounds(3)
    flags.threads(1)
    given = flags.parse_args()
    devices = tuple(given.device.split(",")) if given.device else ()
    rounds = finished(run(given, devices))
    title = "A model on devices: median of the rounds; ratio to the baseline (spread)"
    print_table(title, ("way", *SHOWN, *(f"{name}, ratio" for name in COMPARED)), rows(rounds))
    document = {
        "model": given.model.name,
        "devices": devices or "stand-ins",
        "threads": given.threads,
        "load average": os.getloadavg(),
        "ways": [asdict(way) for way in WAYS],
        "figures": rounds,
    }
    save(f"devices-{devices[0].lower()}" if devices else "devices", document)


if __name__ == "__main__":
    main()
