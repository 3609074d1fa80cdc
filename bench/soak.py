"""Memory of both daemons over many requests: `python -m bench.soak [--seconds 7200]`.

Without `--seconds`, short requests to one of our models. With `--seconds`, everything at once for
that time, on the demo model and with the balancer's state in SQLite: requests of all kinds, whose
answers are checked, prompts that were never sent before, and clients that disconnect. A balancer
keeps an hour of history, which grows for as long, so ask for two hours.

Memory is what a daemon's processes have resident, taken while no request runs. Slopes are those of
lines fitted to the points after the first tenth of the requests and to those of the second half: a
cache that fills up shows in the first and not in the second, a leak shows in both.
"""

import argparse
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import linear_regression

from bench import prompts, ways
from bench.figures import of_burst
from bench.harness import Flags, at_least, finished, print_table, save
from bench.models import SHAPES, made
from bench.processes import resident_together
from bench.sides import Load, start_ours
from bench.soak_load import SoakLoad
from integration_tests.daemons import Daemon, Fleet

SLOTS, CONTEXT_SIZE = 8, 512
NUM_SAMPLES = 60
SHOWN = 12
"""Rows of the table."""

WARM_UP_SHARE = 0.1
MB = 1e6
DAEMONS = ("agent", "balancer")


@dataclass(frozen=True, slots=True)
class Point:
    """Resident bytes after `num_requests` requests."""

    num_requests: int
    agent: int
    balancer: int


def slope(points: Sequence[Point], name: str, after: float) -> float:
    """Bytes a request, of the points after this share of all requests."""
    start = points[-1].num_requests * after
    settled = [point for point in points if point.num_requests >= start]
    return linear_regression(
        [point.num_requests for point in settled], [getattr(point, name) for point in settled]
    ).slope


def slopes(points: Sequence[Point]) -> dict[str, dict[str, float]]:
    """Bytes a request, by daemon: after the warm-up, and in the second half."""
    parts = {"settled": WARM_UP_SHARE, "second half": 0.5}
    return {
        name: {part: slope(points, name, after) for part, after in parts.items()}
        for name in DAEMONS
    }


async def short_requests(given: argparse.Namespace) -> AsyncIterator[Point]:
    """A point before the first request, then `NUM_SAMPLES`. Raises `RequestsFailed`."""
    shape = SHAPES[given.model]
    async with AsyncExitStack() as stack:
        load = Load(made(shape), SLOTS, CONTEXT_SIZE, given.threads)
        side = await start_ours(stack, load)
        weights = shape.path.stat().st_size + SLOTS * CONTEXT_SIZE * shape.kv_bytes_per_token
        print(f"model and KV cache: {weights / MB:.0f} MB", flush=True)
        balancer, agent = side.daemons
        yield _point(balancer, agent, 0)
        size = given.requests // NUM_SAMPLES
        for number in range(1, NUM_SAMPLES + 1):
            requests = prompts.uniform(number, size, num_words=12, num_tokens=8)
            of_burst(await ways.continuous(side.client, requests, size=SLOTS))
            yield _point(balancer, agent, number * size)


async def everything(given: argparse.Namespace) -> AsyncIterator[Point]:
    """A point after everything was asked once, then `NUM_SAMPLES`. Raises `RequestsFailed`."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        fleet = Fleet(stack)
        log = stack.enter_context((folder / "balancer.log").open("wb"))
        # Answers that outlive their connections are stored: here they go after two minutes.
        balancer = await fleet.start_balancer(
            stderr=log.fileno(), state=f"sqlite:///{folder}/state.db", responses_max_age="2m"
        )
        agent = await fleet.start_agent(slots=4, context_size=4096, cache_dir=folder / "prompts")
        host, _, port = balancer.ready["inference"].rpartition(":")
        load = SoakLoad(host, int(port))
        for number in range(NUM_SAMPLES + 1):
            await load.run(number, given.seconds / NUM_SAMPLES if number else 1)
            yield _point(balancer, agent, load.num_requests)


def _point(balancer: Daemon, agent: Daemon, num_requests: int) -> Point:
    sizes = (resident_together(daemon.pids) for daemon in (agent, balancer))
    return Point(num_requests, *sizes)


async def run(given: argparse.Namespace) -> list[Point]:
    """Raises `RequestsFailed`."""
    points = []
    async for point in everything(given) if given.seconds else short_requests(given):
        points.append(point)
        print(", ".join(_row(point)), flush=True)
    return points


def _row(point: Point) -> list[str]:
    sizes = (f"{each / MB:.1f}" for each in (point.agent, point.balancer))
    return [f"{point.num_requests:,}", *sizes]


def main() -> None:
    flags = Flags("soak", __doc__)
    flags.shape("tiny")
    flags.threads()
    help = "short requests to send (10,000)"
    flags.add_argument("--requests", type=at_least(500), default=10_000, help=help)
    help = "ask for everything, for this time"
    flags.add_argument("--seconds", type=at_least(NUM_SAMPLES), help=help)
    given = flags.parse_args()
    points = finished(run(given))
    rows = map(_row, points[:: NUM_SAMPLES // SHOWN])
    print_table("Resident memory, MB", ("requests", *DAEMONS), rows, left=0)
    found = slopes(points)
    for name, by_part in found.items():
        for part, bytes_a_request in by_part.items():
            print(f"{name}, {part}: {bytes_a_request:+,.0f} bytes a request")
    document = {
        "given": vars(given),
        "slope_bytes_per_request": found,
        "points": [asdict(point) for point in points],
    }
    save("soak", document)


if __name__ == "__main__":
    main()
