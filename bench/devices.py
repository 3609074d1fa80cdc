"""A model on devices, by how it is split and what its cache is made of: `python -m bench.devices`.

Each way gets an agent of its own, in turn, and each round begins with another. The figures are the
seconds until the agent is ready, and those of streams with short prompts that run together. Ratios
are within a round, to the way without any device or, for the cache and experts, on one.

Without `--device` the devices are other processes on this machine (`tests/rpc_device.py`), with a
thread each: that shows what splitting costs, and not what a GPU brings. With `--device` they are
the host's own, such as `CUDA0,CUDA1`.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from rich.table import Table

from bench import prompts, ways
from bench.arguments import at_least, model_file
from bench.figures import (
    BETWEEN_TOKENS,
    FIRST_TOKEN,
    TOKENS_PER_SECOND,
    RequestsFailed,
    check,
    median_of,
    of_burst,
    ratio,
    shown,
)
from bench.models import Q06
from bench.sides import Load, start_ours
from bench.small_models import write
from bench.store import save, wide_console
from tests.rpc_device import RpcDevice

SLOTS, CONTEXT = 4, 1024
NUM_WORDS, NUM_TOKENS = 64, 32
LARGE, SMALL = 4 * 2**30, 2**29
"""Bytes of a device that another process stands in for: all of the model, or less than half."""

LOADING = "time to load"
SHOWN = (LOADING, TOKENS_PER_SECOND, FIRST_TOKEN, BETWEEN_TOKENS)
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

Figures = dict[str, list[dict[str, float]]]


async def measure(way: Way, load: Load, settings: dict[str, object], seed: int) -> dict[str, float]:
    """Raises `RequestsFailed`."""
    async with AsyncExitStack() as stack:
        began = time.monotonic()
        side = await start_ours(stack, load, **(settings | way.settings))
        ready = time.monotonic() - began
        warm_up = prompts.uniform(-seed, SLOTS, num_words=8, num_tokens=2)
        check(await ways.continuous(side.client, warm_up, size=SLOTS))
        requests = prompts.uniform(seed, 2 * SLOTS, num_words=NUM_WORDS, num_tokens=NUM_TOKENS)
        samples = await ways.continuous(side.client, requests, size=SLOTS)
        return {LOADING: ready, **of_burst(samples)}


async def run(model: Path, devices: tuple[str, ...], *, rounds: int, threads: int) -> Figures:
    """Each way's figures, a mapping each round. Raises `RequestsFailed`."""
    in_turn = [way for way in WAYS if not devices or len(way.devices) <= len(devices)]
    figures: Figures = {way.name: [] for way in in_turn}
    with TemporaryDirectory() as folder:
        mixture = write(MIXTURE, Path(folder) / "mixture.gguf")
        for number in range(1, rounds + 1):
            for way in in_turn:
                load = Load(mixture if way.is_mixture else model, SLOTS, CONTEXT, threads)
                with ExitStack() as stack:
                    settings = _settings(way, devices, stack)
                    found = await measure(way, load, settings, number)
                figures[way.name].append(found)
                words = ", ".join(f"{name} {shown(name, found[name])}" for name in SHOWN)
                print(f"{number}/{rounds} {way.name}: {words}", flush=True)
            in_turn = [*in_turn[1:], in_turn[0]]
    return figures


def _settings(way: Way, devices: tuple[str, ...], stack: ExitStack) -> dict[str, object]:
    """Those that name the way's devices; stand-ins last as long as `stack`."""
    if not way.devices:
        return {}
    if devices:
        return {"device": ",".join(devices[: len(way.devices)])}
    started = [stack.enter_context(RpcDevice(memory)) for memory in way.devices]
    return {"rpc": ",".join(device.address for device in started)}


def show(figures: Figures) -> None:
    table = Table(title="A model on devices: median of the rounds; ratio to the baseline (spread)")
    for name in ("way", *SHOWN, f"{TOKENS_PER_SECOND}, ratio", f"{BETWEEN_TOKENS}, ratio"):
        table.add_column(name, justify="left" if name == "way" else "right")
    for way in WAYS:
        if rounds := figures.get(way.name):
            table.add_row(way.name, *_cells(rounds, figures[way.baseline]))
    wide_console().print(table)


def _cells(rounds: list[dict[str, float]], baseline: list[dict[str, float]]) -> Iterator[str]:
    yield from (shown(name, median_of(rounds, name)) for name in SHOWN)
    if rounds is baseline:
        yield from ("", "")
    else:
        yield from (
            str(ratio(rounds, baseline, name)) for name in (TOKENS_PER_SECOND, BETWEEN_TOKENS)
        )


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.devices")
    parser.add_argument(
        "--device", default="", help="the host's own, with commas; stand-ins without it"
    )
    parser.add_argument("--model", type=model_file, default=Q06.path, help="GGUF file")
    parser.add_argument("--rounds", type=at_least(1), default=3, help="times each way is run")
    parser.add_argument("--threads", type=at_least(1), default=1, help="threads of the agent")
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parse(sys.argv[1:])
    devices = tuple(arguments.device.split(",")) if arguments.device else ()
    try:
        figures = uvloop.run(
            run(arguments.model, devices, rounds=arguments.rounds, threads=arguments.threads)
        )
    except RequestsFailed as error:
        raise SystemExit(f"bench: {error}") from error
    show(figures)
    document = {
        "model": arguments.model.name,
        "devices": devices or "stand-ins",
        "threads": arguments.threads,
        "load average": os.getloadavg(),
        "ways": [asdict(way) for way in WAYS],
        "figures": figures,
    }
    save(f"devices-{devices[0].lower()}" if devices else "devices", document)


if __name__ == "__main__":
    main()
