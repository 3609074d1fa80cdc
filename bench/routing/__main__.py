"""Choosing agents by cost against choosing them by load: `python -m bench.routing`.

In virtual time, around the balancer's own core: three agents that are alike, and a fast one beside
three slow ones. `one` has the slots, the cache and the speed of all three agents in one.

First tokens and throughput are ratios to choosing by load; the cached share is one to `one`'s.
"""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import asdict
from random import Random
from statistics import median

from rich.table import Table

from bench.routing.host import Speeds
from bench.routing.simulation import HostKind, Outcome, simulate
from bench.routing.workloads import WORKLOADS, Conversation
from bench.store import save, wide_console

HOST = HostKind()
ALIKE = [HOST] * 3
IN_ONE = [HostKind(slots=12, cache=3 * HOST.cache, speeds=Speeds(prefill=900.0, sequence=0.01 / 3))]
MIXED = [
    HostKind(slots=8, cache=65_536, speeds=Speeds(prefill=3000.0, step=0.02, sequence=0.001)),
    *[HostKind(speeds=Speeds(prefill=100.0, step=0.08, sequence=0.03))] * 3,
]
FLEETS = {"three alike": ALIKE, "one fast, three slow": MIXED}
ROUTINGS: tuple[str, ...] = ("load", "cost")
Pair = dict[str, Outcome]


def drawn(name: str, seed: int) -> list[Conversation]:
    return WORKLOADS[name](Random(seed))


def simulated(hosts: list[HostKind], name: str, seed: int) -> Pair:
    """Each way on the same conversations; and all in one, where the agents are alike."""
    pair = {way: simulate(hosts, drawn(name, seed), way) for way in ROUTINGS}
    if hosts is ALIKE:
        pair["one"] = simulate(IN_ONE, drawn(name, seed), "load")
    return pair


def show(title: str, rows: dict[str, list[Pair]]) -> None:
    table = Table(title=title)
    for heading in ("workload", "first token, s", "ratio", "requests/s", "ratio", "cached share"):
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    for heading in ("to one", "idle beside a waiting one, s"):
        table.add_column(heading, justify="right")
    for name, pairs in rows.items():
        table.add_row(name, *_cells(pairs))
    wide_console().print(table)


def _cells(pairs: list[Pair]) -> Iterable[str]:
    """Medians over the seeds."""

    def middle(of: str, way: str) -> float:
        return median(getattr(pair[way], of) for pair in pairs)

    def ratio(of: str, way: str = "cost", to: str = "load") -> float:
        pairs_of = [(getattr(pair[way], of), getattr(pair[to], of)) for pair in pairs]
        return median(a / b for a, b in pairs_of if b) if all(b for _, b in pairs_of) else 1.0

    for of in ("mean_first_token", "throughput"):
        yield f"{middle(of, 'load'):.2f} → {middle(of, 'cost'):.2f}"
        yield f"{ratio(of):.2f}"
    yield f"{middle('cached_share', 'load'):.2f} → {middle('cached_share', 'cost'):.2f}"
    yield f"{ratio('cached_share', to='one'):.2f}" if "one" in pairs[0] else "-"
    yield f"{max(pair['cost'].idle_beside_waiting for pair in pairs):.2f}"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.routing")
    parser.add_argument("--seeds", type=int, default=5, help="draws of each workload")
    parser.add_argument("--only", choices=WORKLOADS, action="append", help="these workloads")
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parse(sys.argv[1:])
    names = arguments.only or list(WORKLOADS)
    seeds = range(1, arguments.seeds + 1)
    results: dict[str, dict[str, list[Pair]]] = {}
    for fleet, hosts in FLEETS.items():
        results[fleet] = {name: [simulated(hosts, name, seed) for seed in seeds] for name in names}
        show(f"{fleet}, by load → by cost", results[fleet])
    found = {
        fleet: {
            name: [{way: _numbers(each) for way, each in pair.items()} for pair in pairs]
            for name, pairs in rows.items()
        }
        for fleet, rows in results.items()
    }
    save("routing", found)


def _numbers(outcome: Outcome) -> dict[str, object]:
    numbers = asdict(outcome)
    del numbers["first_tokens"]
    return {
        **numbers,
        "mean_first_token": outcome.mean_first_token,
        "throughput": outcome.throughput,
        "cached_share": outcome.cached_share,
    }


if __name__ == "__main__":
    main()
