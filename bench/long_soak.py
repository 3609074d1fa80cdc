"""Memory of both daemons over an hour of everything: `python -m bench.long_soak`.

One agent with the demo model and a balancer with its state in SQLite. A balancer keeps the history
of an hour second by second, which grows for as long, so it starts with a full one. Requests of all
kinds, whose answers are checked, prompts that were never sent before, and clients that disconnect:
see `bench.soak_load`. Memory is taken between the samples, while no request runs. The slopes are
those of lines fitted to the samples after the first tenth and to those of the second half: caches
that fill up show in the first and not in the second, a leak shows in both.
"""

import argparse
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from bench import full_history
from bench.arguments import at_least
from bench.figures import RequestsFailed
from bench.soak import MB, WARM_UP_SHARE, Point, point, slope
from bench.soak_load import SoakLoad
from bench.store import RESULTS, save
from integration_tests.daemons import MODEL, Fleet

AGENT = "agent"
SLOTS, CONTEXT_SIZE = 4, 4096
NUM_SAMPLES = 60
SHOWN = 12
"""Rows of the table."""

KEPT_FOR = "2m"
"""Answers that outlive their connections are stored for an hour by default: they would come, and
none go, as long as the soak lasts."""


async def run(seconds: float, logs: Path) -> list[Point]:
    """A point after everything was asked once, then `NUM_SAMPLES`. Raises `RequestsFailed`.

    Both daemons' logs go to files in `logs`, a folder that exists.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        fleet = Fleet(stack)
        state = f"sqlite:///{folder}/state.db"
        await full_history.fill(state, AGENT, MODEL.stem)
        log = stack.enter_context((logs / "balancer.log").open("wb"))
        balancer = await fleet.start_balancer(
            stderr=log.fileno(), state=state, responses_max_age=KEPT_FOR
        )
        agent = await fleet.start_agent(
            name=AGENT, slots=SLOTS, context_size=CONTEXT_SIZE, cache_dir=folder / "prompts"
        )
        stack.callback(lambda: (logs / "agent.log").write_text("\n".join(agent.stderr)))
        host, _, port = balancer.ready["inference"].rpartition(":")
        load = SoakLoad(host, int(port))
        points = []
        for number in range(NUM_SAMPLES + 1):
            await load.run(number, seconds / NUM_SAMPLES if number else 1)
            points.append(point((balancer, agent), load.num_requests))
            _say(number, points[-1])
        return points


def _say(number: int, now: Point) -> None:
    memory = f"agent {now.agent / MB:.1f} MB, balancer {now.balancer / MB:.1f} MB"
    print(f"{number} of {NUM_SAMPLES}: {now.num_requests:,} requests, {memory}", flush=True)


def slopes(points: list[Point]) -> dict[str, dict[str, float]]:
    """Bytes a request, by daemon: after the warm-up, and in the second half."""
    return {
        name: {
            "settled": slope(points, name, after=WARM_UP_SHARE),
            "second half": slope(points, name, after=0.5),
        }
        for name in ("agent", "balancer")
    }


def show(points: list[Point]) -> None:
    table = Table(title="Resident memory, MB")
    for heading in ("requests", "agent", "balancer"):
        table.add_column(heading, justify="right")
    for each in points[:: NUM_SAMPLES // SHOWN]:
        table.add_row(
            f"{each.num_requests:,}", f"{each.agent / MB:.1f}", f"{each.balancer / MB:.1f}"
        )
    console = Console()
    console.print(table)
    for name, by_part in slopes(points).items():
        for part, bytes_a_request in by_part.items():
            console.print(f"{name}, {part}: {bytes_a_request:+,.0f} bytes a request")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.long_soak")
    parser.add_argument(
        "--seconds", type=at_least(NUM_SAMPLES), default=3600, help="time to ask for"
    )
    parser.add_argument(
        "--logs", type=Path, default=RESULTS / "long_soak", help="folder for the daemons' logs"
    )
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parse(sys.argv[1:])
    arguments.logs.mkdir(parents=True, exist_ok=True)
    try:
        points = uvloop.run(run(arguments.seconds, arguments.logs))
    except* RequestsFailed as failed:
        raise SystemExit(f"bench: {failed.exceptions[0]}") from failed
    show(points)
    document = {
        "seconds": arguments.seconds,
        "requests": points[-1].num_requests,
        "slope_bytes_per_request": slopes(points),
        "points": [asdict(each) for each in points],
    }
    save("long_soak", document)


if __name__ == "__main__":
    main()
