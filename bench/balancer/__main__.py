"""What a balancer costs a token: `python -m bench.balancer`.

Each case runs in turn on each side, in several rounds; the table has medians, least and most.
Peers are measured where the Python of `--peers` has them; install them from PyPI as `sglang-router`
and `litellm[proxy]`.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.balancer.apis import APIS, SOCKET
from bench.balancer.sides import FOR_OPENAI, SIDES, Cores, Hosts, installed, running
from bench.figures import spread
from bench.harness import Flags, at_least, print_table, save

CLIENT_DEADLINE = 300.0
Figures = dict[str, Any]
"""What the client prints: `client.Figures` as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A number of streams at once, of a number of tokens; `rate` in tokens a second and stream.

    With a rate of 0 agents send as fast as the balancer reads.
    """

    api: str
    streams: int
    rate: float
    agents: int
    tokens: int

    def __str__(self) -> str:
        pace = f"{self.rate:g}/s" if self.rate else "unpaced"
        return f"{self.api}, {self.streams:,} at {pace}, {self.agents} agents"


def measured(side: str, case: Case, given: argparse.Namespace) -> Figures:
    """One run. Raises `RuntimeError` if anything went wrong: then there are no figures."""
    cores = Cores(*sorted(os.sched_getaffinity(0))[:2])
    slots = -(-case.streams // case.agents)
    hosts = Hosts(num_agents=case.agents, slots=slots, rate=case.rate)
    with running(side, cores, hosts, given.peers) as balancer:
        client = subprocess.run(
            [
                *("taskset", "-c", str(cores.others)),
                *(sys.executable, "-m", "bench.balancer.client"),
                *("--address", balancer.address, "--pid", str(balancer.pid)),
                *("--core", str(cores.others), "--api", case.api),
                *("--streams", str(case.streams), "--tokens", str(case.tokens)),
                *("--warm-up", str(given.warm_up), "--seconds", str(given.seconds)),
                *("--pause", str(given.pause)),
            ],
            capture_output=True,
            text=True,
            timeout=CLIENT_DEADLINE,
            check=False,
        )
    if client.returncode:
        raise RuntimeError(f"{side}, {case}: {client.stderr.strip()[-1000:]}")
    figures: Figures = json.loads(client.stdout)
    return figures


def row(rounds: Sequence[Figures]) -> list[str]:
    """The cells of a table's row after its names."""

    def of(name: str, scale: float, digits: int) -> str:
        return spread([each[name] * scale for each in rounds], f"{{:,.{digits}f}}".format)

    def latency(name: str) -> str:
        return spread([each["latencies"][name] * 1e3 for each in rounds], "{:,.2f}".format)

    return [
        of("tokens_per_second", 1, 0),
        of("cpu_seconds_per_token", 1e6, 1),
        of("tokens_per_event", 1, 2),
        latency("p50"),
        latency("p99"),
        of("bytes_per_stream", 1e-3, 0),
        of("others_busy", 100, 0),
    ]


def show(results: dict[tuple[str, Case], list[Figures]]) -> None:
    headings = (
        *("balancer", "case", "tokens/s", "µs of its core a token", "tokens an event"),
        *("late, p50 ms", "late, p99 ms", "KB a stream", "other core, %"),
    )
    rows = ([side, str(case), *row(rounds)] for (side, case), rounds in results.items())
    print_table("What the balancer costs", headings, rows, left=2)


def cases(given: argparse.Namespace) -> list[Case]:
    """Every combination of what was given."""
    return [
        Case(api=api, streams=streams, rate=rate, agents=agents, tokens=given.tokens)
        for streams in given.streams
        for rate in given.rate
        for agents in given.agents
        for api in given.api
    ]


def run(given: argparse.Namespace) -> dict[tuple[str, Case], list[Figures]]:
    """All rounds of all cases. Raises `RuntimeError`."""
    results: dict[tuple[str, Case], list[Figures]] = {}
    for _ in range(given.rounds):
        for case in cases(given):
            for side in given.sides:
                if side in FOR_OPENAI and case.api != "openai":
                    continue
                figures = measured(side, case, given)
                results.setdefault((side, case), []).append(figures)
                cost = figures["cpu_seconds_per_token"] * 1e6
                print(f"{side}, {case}: {cost:.1f} µs a token", file=sys.stderr)
    return results


def parse() -> argparse.Namespace:
    parser = Flags("balancer", __doc__)
    parser.add_argument("--api", nargs="+", choices=[*APIS, SOCKET], default=[*APIS, SOCKET])
    parser.add_argument("--streams", nargs="+", type=at_least(1), default=[256])
    parser.add_argument(
        "--rate", nargs="+", type=float, default=[20.0], help="tokens a second and stream; 0: most"
    )
    parser.add_argument("--agents", nargs="+", type=at_least(1), default=[4])
    parser.add_argument("--tokens", type=at_least(1), default=64, help="of each stream")
    parser.rounds(1)
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=5.0, help="that are measured")
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds between two looks of the client"
    )
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument(
        "--peers", default=sys.executable, metavar="PYTHON", help="of an environment with the peers"
    )
    given = parser.parse_args()
    requested = given.sides
    given.sides = [side for side in requested if installed(side, given.peers)]
    if missing := [side for side in requested if side not in given.sides]:
        print(f"not installed, so not measured: {', '.join(missing)}")
    return given


def main() -> None:
    given = parse()
    try:
        results = run(given)
    except RuntimeError as error:
        raise SystemExit(f"bench: {error}") from error
    show(results)
    rounds = [
        {"side": side, **asdict(case), "rounds": all} for (side, case), all in results.items()
    ]
    save("balancer", {"command": sys.argv, "results": rounds})


if __name__ == "__main__":
    main()
