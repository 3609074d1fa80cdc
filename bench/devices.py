"""A model on devices, by how it is split and what its cache is made of: `python -m bench.devices`.

Each way gets an agent of its own, in turn, and each round begins with another. The figures are the
seconds until the agent is ready, and those of streams with short prompts that run together.

Without `--device` the devices are other processes on this machine (`tests/rpc_device.py`), with a
thread each: that shows what splitting costs, and not what a GPU brings. With `--device` they are
the host's own, such as `CUDA0,CUDA1`.
"""

import argparse
import sys
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

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
    of_burst,
    shown,
)
from bench.models import Q06
from bench.sides import Load, start_ours
from bench.store import save, wide_console
from tests.rpc_device import RpcDevice

SLOTS, CONTEXT = 4, 1024
NUM_WORDS, NUM_TOKENS = 64, 32
MEMORY = 4 * 2**30
"""Bytes of each device that another process stands in for."""

LOADING = "time to load"
SHOWN = (LOADING, TOKENS_PER_SECOND, FIRST_TOKEN, BETWEEN_TOKENS)


@dataclass(frozen=True, slots=True)
class Way:
    """`num_devices` are used; `settings` are the agent's."""

    name: str
    num_devices: int
    settings: dict[str, object] = field(default_factory=dict)


def _of_cache(kind: str) -> Way:
    return Way(f"one device, {kind} cache", 1, {"cache_type_k": kind, "cache_type_v": kind})


WAYS = (
    Way("CPU alone", 0, {"device": "none"}),
    Way("one device", 1),
    Way("two devices, 1:1", 2, {"tensor_split": "1,1"}),
    Way("two devices, 3:1", 2, {"tensor_split": "3,1"}),
    _of_cache("q8_0"),
    _of_cache("q4_0"),
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
    load = Load(model, SLOTS, CONTEXT, threads)
    fitting = [way for way in WAYS if not devices or way.num_devices <= len(devices)]
    figures: Figures = {way.name: [] for way in fitting}
    for number in range(1, rounds + 1):
        for way in fitting:
            with ExitStack() as stack:
                settings = _settings(way, devices, stack)
                found = await measure(way, load, settings, number)
            figures[way.name].append(found)
            words = ", ".join(f"{name} {shown(name, found[name])}" for name in SHOWN)
            print(f"{number}/{rounds} {way.name}: {words}", flush=True)
        fitting = [*fitting[1:], fitting[0]]
    return figures


def _settings(way: Way, devices: tuple[str, ...], stack: ExitStack) -> dict[str, object]:
    """Those that name the way's devices; stand-ins last as long as `stack`."""
    if not way.num_devices:
        return {}
    if devices:
        return {"device": ",".join(devices[: way.num_devices])}
    started = [stack.enter_context(RpcDevice(MEMORY)) for _ in range(way.num_devices)]
    return {"rpc": ",".join(device.address for device in started)}


def show(figures: Figures) -> None:
    table = Table(title="A model on devices: median (least to most) of the rounds")
    table.add_column("way")
    for name in SHOWN:
        table.add_column(name, justify="right")
    for way, rounds in figures.items():
        table.add_row(way, *(_spread(name, [each[name] for each in rounds]) for name in SHOWN))
    wide_console().print(table)


def _spread(name: str, values: list[float]) -> str:
    low, middle, high = min(values), sorted(values)[len(values) // 2], max(values)
    return f"{shown(name, middle)} ({shown(name, low)} to {shown(name, high)})"


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
        "ways": [asdict(way) for way in WAYS],
        "figures": figures,
    }
    save("devices", document)


if __name__ == "__main__":
    main()
