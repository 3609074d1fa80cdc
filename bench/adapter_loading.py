"""What loading an adapter costs the streams beside it: `python -m bench.adapter_loading`.

An agent serves what the desired state says, and streams of its model run all the while. Then a
large adapter (LoRA, random) is added to the desired state until it answers, and removed again. The
figures are the longest gap of any stream in each of these times, and in one when nothing happens.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.adapters import write_adapter
from bench.arguments import at_least
from bench.endless_streams import GENERATE, PATIENCE, EndlessStreams, Watched
from bench.models import SHAPES, made
from integration_tests.daemons import Fleet

NAME, ADAPTER = "base", "large"
CONTEXT_SIZE = 2048
PAUSE = 3.0
"""Seconds that streams are watched where nothing says when it is over."""


class Adapted:
    """A fleet of one agent, which has the model with the adapter or without."""

    def __init__(self, fleet: Fleet, model: Path, adapter: Path) -> None:
        self._fleet = fleet
        self._base: dict[str, Any] = {"name": NAME, "source": model.as_uri()}
        self._adapter = {"name": ADAPTER, "source": adapter.as_uri()}

    async def load(self) -> None:
        """Until it answers."""
        await self._wish(self._base | {"adapters": [self._adapter]})
        await self._ask(f"{NAME}:{ADAPTER}")

    async def unload(self) -> None:
        """Then there is only the model, after a while."""
        await self._wish(self._base)
        await asyncio.sleep(PAUSE)
        await self._ask(NAME)

    async def _wish(self, model: dict[str, Any]) -> None:
        url = f"{self._fleet.management}/api/v1/desired-state"
        async with self._fleet.http.put(url, json={"models": [model]}) as response:
            if response.status != 200:
                raise SystemExit(f"bench: {await response.text()}")

    async def _ask(self, model: str) -> None:
        body = {"model": model, "prompt": "Well", "max_tokens": 1, "stream": False}
        url = self._fleet.inference + GENERATE
        async with self._fleet.http.post(url, json=body, timeout=PATIENCE) as response:
            if response.status != 200:
                raise SystemExit(f"bench: {model}: {await response.text()}")


async def measure(arguments: argparse.Namespace) -> None:
    """Print the medians and ranges of all rounds."""
    shape = SHAPES[arguments.model]
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="arriero-bench-")))
        file = folder / f"{ADAPTER}.gguf"
        write_adapter(file, shape, rank=arguments.rank, seed=1)
        print(f"an adapter of {file.stat().st_size / 2**20:.0f} MiB, {shape.name}", flush=True)
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(buffered_request_timeout=600, first_token_timeout=600)
        await fleet.start_agent(
            model=None,
            slots=arguments.streams + 1,
            context_size=CONTEXT_SIZE,
            threads=arguments.threads,
        )
        adapted = Adapted(fleet, made(shape), file)
        await adapted.unload()
        does: dict[str, Callable[[], Awaitable[object]]] = {
            "nothing": partial(asyncio.sleep, PAUSE),
            "loading": adapted.load,
            "unloading": adapted.unload,
        }
        results: dict[str, list[Watched]] = {way: [] for way in does}
        streams = EndlessStreams(fleet, NAME)
        async with streams.running(arguments.streams):
            for _ in range(arguments.rounds):
                for way, doing in does.items():
                    results[way].append(await streams.watched(doing))
        for way, found in results.items():
            print(_line(way, found))


def _line(way: str, found: Sequence[Watched]) -> str:
    gaps = [1000 * each.gap for each in found]
    seconds = median(each.seconds for each in found)
    return (
        f"{way}: longest gap {median(gaps):.0f} ms ({min(gaps):.0f} to {max(gaps):.0f}) "
        f"in {seconds:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.adapter_loading")
    parser.add_argument("--model", choices=sorted(SHAPES), default="tiny")
    parser.add_argument("--rank", type=at_least(1), default=4700, help="of the adapter")
    parser.add_argument("--streams", type=at_least(1), default=4)
    parser.add_argument("--threads", type=at_least(1), default=1)
    parser.add_argument("--rounds", type=at_least(1), default=3)
    asyncio.run(measure(parser.parse_args(sys.argv[1:])))


if __name__ == "__main__":
    main()
