"""Memory of both daemons over many short requests: `python -m bench.soak`.

Memory is what a daemon's processes have resident, from /proc. What the agent takes beyond the
model and its KV cache is what Arriero and llama.cpp's working buffers add; the slope is that of a
line fitted to the samples after the first tenth of the requests.
"""

import argparse
import os
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import linear_regression

import uvloop
from rich.console import Console
from rich.table import Table

from bench import prompts, ways
from bench.arguments import at_least
from bench.figures import RequestsFailed, of_burst
from bench.models import SHAPES, Shape, made
from bench.sides import Load, start_ours
from bench.store import save
from integration_tests.daemons import Daemon

SLOTS, CONTEXT_SIZE = 8, 512
NUM_SAMPLES = 50
WARM_UP_SHARE = 0.1
MB = 1e6
MAX_BEYOND = 200 * MB
"""What the agent may take beyond model and KV cache."""


@dataclass(frozen=True, slots=True)
class Point:
    """Resident bytes after `num_requests` requests."""

    num_requests: int
    agent: int
    balancer: int


def resident_bytes(pids: Iterable[int]) -> int:
    """What the processes of a daemon have in memory together.

    Files are mapped by several of them, so those of the one that maps the most are counted. The
    proportional set size would say it exactly, but changes with what else maps those files.
    """
    statuses = [_status(pid) for pid in pids]
    return sum(each["RssAnon"] for each in statuses) + max(each["RssFile"] for each in statuses)


def _status(pid: int) -> dict[str, int]:
    """Sizes in bytes."""
    pairs = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {pair[0].rstrip(":"): int(pair[1]) * 1024 for pair in pairs if pair[-1] == "kB"}


def slope(points: list[Point], name: str, after: float = WARM_UP_SHARE) -> float:
    """Bytes a request, of the points after this share of all requests."""
    start = points[-1].num_requests * after
    settled = [point for point in points if point.num_requests >= start]
    return linear_regression(
        [point.num_requests for point in settled], [getattr(point, name) for point in settled]
    ).slope


async def run(arguments: argparse.Namespace) -> list[Point]:
    """A point before the first request, then `NUM_SAMPLES`. Raises `RequestsFailed`."""
    shape = SHAPES[arguments.model]
    async with AsyncExitStack() as stack:
        load = Load(made(shape), SLOTS, CONTEXT_SIZE, arguments.threads)
        side = await start_ours(stack, load)
        points = [point(side.daemons, 0)]
        size = arguments.requests // NUM_SAMPLES
        for number in range(1, NUM_SAMPLES + 1):
            requests = prompts.uniform(number, size, num_words=12, num_tokens=8)
            of_burst(await ways.continuous(side.client, requests, size=SLOTS))
            points.append(point(side.daemons, number * size))
    return points


def point(daemons: tuple[Daemon, ...], num_requests: int) -> Point:
    """What a balancer and an agent, in this order, have now."""
    balancer, agent = (resident_bytes(daemon.pids) for daemon in daemons)
    return Point(num_requests, agent=agent, balancer=balancer)


def expected_bytes(shape: Shape) -> int:
    """Model and KV cache."""
    return shape.path.stat().st_size + SLOTS * CONTEXT_SIZE * shape.kv_bytes_per_token


def show(points: list[Point], expected: int) -> None:
    table = Table(title="Resident memory, MB")
    for heading in ("requests", "agent", "beyond model and KV cache", "balancer"):
        table.add_column(heading, justify="right")
    for point in points[:: NUM_SAMPLES // 10]:
        megabytes = (point.agent, point.agent - expected, point.balancer)
        table.add_row(f"{point.num_requests:,}", *(f"{each / MB:.1f}" for each in megabytes))
    console = Console()
    console.print(table)
    for name in ("agent", "balancer"):
        console.print(f"{name}: {slope(points, name) * 1000 / MB:+.3f} MB a thousand requests")
    most = max(point.agent for point in points) - expected
    verdict = "within" if most <= MAX_BEYOND else "over"
    console.print(
        f"agent: {most / MB:.1f} MB at most, {verdict} the {MAX_BEYOND / MB:.0f} MB allowed"
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.soak")
    parser.add_argument("--model", choices=SHAPES, default="tiny", help="model to serve")
    parser.add_argument(
        "--requests", type=at_least(500), default=10_000, help="short requests to send"
    )
    parser.add_argument(
        "--threads", type=at_least(1), default=os.cpu_count() or 1, help="threads of the engine"
    )
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parse(sys.argv[1:])
    try:
        points = uvloop.run(run(arguments))
    except RequestsFailed as error:
        raise SystemExit(f"bench: {error}") from error
    expected = expected_bytes(SHAPES[arguments.model])
    show(points, expected)
    document = {
        "model": arguments.model,
        "requests": points[-1].num_requests,
        "expected_bytes": expected,
        "slope_bytes_per_request": {name: slope(points, name) for name in ("agent", "balancer")},
        "points": [asdict(point) for point in points],
    }
    save("soak", document)


if __name__ == "__main__":
    main()
