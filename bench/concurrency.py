"""`make bench`: continuous batching against one at a time and against static batches.

One balancer and one agent serve the same requests, mixed in length, in every way in turn. A round
runs all the ways once; the figures are medians over the rounds, and each ratio is the median of
the ratios within rounds, so that a machine whose speed drifts does not shift them.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import ways
from bench.client import Sample
from integration_tests.daemons import MODEL, Fleet

RESULTS = Path(__file__).parent / "results" / "concurrency.json"
SIZES = (1, 2, 4, 8)
SHORTEST, LONGEST = 8, 128
WORDS = [
    "agent",
    "balancer",
    "slot",
    "queue",
    "token",
    "stream",
    "prompt",
    "model",
    "fleet",
    "cache",
    "batch",
    "step",
]


@dataclass(frozen=True)
class Figures:
    """One way of serving, in one round. Times in seconds."""

    tokens_per_second: float
    first_token: float
    first_token_p95: float
    between_tokens: float | None
    between_tokens_p99: float | None


@dataclass(frozen=True)
class Way:
    """A named way of serving the requests."""

    name: str
    size: int
    run: Callable[..., Any]


WAYS = (
    Way("one at a time", 1, ways.static),
    *(Way("static", size, ways.static) for size in SIZES if size > 1),
    *(Way("continuous", size, ways.continuous) for size in SIZES),
)


def make_requests(num: int, seed: int) -> list[dict[str, Any]]:
    """`num` requests of 8 to 128 tokens each, the same for the same seed."""
    draw = random.Random(seed)
    return [
        {
            "prompt": " ".join(draw.choices(WORDS, k=64)),
            "max_tokens": draw.randint(SHORTEST, LONGEST),
            "ignore_eos": True,
            "temperature": 0,
        }
        for _ in range(num)
    ]


def figures(samples: list[Sample], wall: float) -> Figures:
    """Raises `SystemExit` if a request failed: a failure has no speed."""
    failures = [sample.failure for sample in samples if sample.failure]
    if failures:
        raise SystemExit(f"bench: {len(failures)} of {len(samples)} requests failed: {failures[0]}")
    firsts = [sample.first_token for sample in samples]
    gaps = [gap for sample in samples for gap in sample.gaps]
    return Figures(
        tokens_per_second=sum(sample.num_tokens for sample in samples) / wall,
        first_token=median(firsts),
        first_token_p95=quantiles(firsts, n=20)[-1],
        between_tokens=median(gaps) if gaps else None,
        between_tokens_p99=quantiles(gaps, n=100)[-1] if gaps else None,
    )


async def run_round(fleet: Fleet, requests: ways.Requests) -> list[Figures]:
    """Every way once, in the order of `WAYS`."""
    results = []
    for way in WAYS:
        started = time.perf_counter()
        samples = await way.run(fleet.http, fleet.inference, requests, size=way.size)
        results.append(figures(samples, time.perf_counter() - started))
        print(f"  {way.name} {way.size}: {results[-1].tokens_per_second:.0f} tok/s", flush=True)
    return results


async def run(arguments: argparse.Namespace) -> list[list[Figures]]:
    """One list of figures a round."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer()
        await fleet.start_agent(
            model=arguments.model, slots=max(SIZES), context_size=512, threads=arguments.threads
        )
        requests = make_requests(arguments.requests, seed=1)
        await ways.continuous(fleet.http, fleet.inference, requests[: max(SIZES)], size=max(SIZES))
        rounds = []
        for number in range(1, arguments.rounds + 1):
            print(f"round {number} of {arguments.rounds}", flush=True)
            rounds.append(await run_round(fleet, requests))
        return rounds


def summarise(rounds: list[list[Figures]]) -> list[dict[str, Any]]:
    """One row a way: medians over the rounds, ratios against the two baselines."""
    rows = []
    for index, way in enumerate(WAYS):
        own = [results[index] for results in rounds]
        row: dict[str, Any] = {"way": way.name, "size": way.size}
        for name in Figures.__dataclass_fields__:
            values = [value for one in own if (value := getattr(one, name)) is not None]
            row[name] = median(values) if values else None
        spread = [one.tokens_per_second for one in own]
        row["tokens_per_second_range"] = [min(spread), max(spread)]
        row["throughput_vs_one_at_a_time"] = ratio(rounds, index, 0, "tokens_per_second")
        row["first_token_vs_one_at_a_time"] = ratio(rounds, index, 0, "first_token")
        baseline = WAYS.index(Way("static", way.size, ways.static)) if way.size > 1 else 0
        row["throughput_vs_static"] = ratio(rounds, index, baseline, "tokens_per_second")
        row["first_token_vs_static"] = ratio(rounds, index, baseline, "first_token")
        rows.append(row)
    return rows


def ratio(rounds: list[list[Figures]], index: int, baseline: int, name: str) -> float:
    return median(getattr(one[index], name) / getattr(one[baseline], name) for one in rounds)


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="The same requests, served in different ways (medians)")
    headings = (
        "way",
        "size",
        "tok/s",
        "of one",
        "of static",
        "first token",
        "of static",
        "between",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "way" else "right")
    for row in rows:
        between = row["between_tokens"]
        table.add_row(
            row["way"],
            str(row["size"]),
            f"{row['tokens_per_second']:.0f}",
            f"{row['throughput_vs_one_at_a_time']:.2f}",
            f"{row['throughput_vs_static']:.2f}",
            f"{row['first_token'] * 1000:.1f} ms",
            f"{row['first_token_vs_static']:.3f}",
            f"{between * 1000:.2f} ms" if between else "-",
        )
    Console().print(table)


def save(arguments: argparse.Namespace, rounds: list[list[Figures]], rows: list[Any]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    document = {
        "model": Path(arguments.model).name,
        "requests": arguments.requests,
        "threads": arguments.threads,
        "rows": rows,
        "rounds": [[asdict(one) for one in results] for results in rounds],
    }
    RESULTS.write_text(json.dumps(document, indent=2) + "\n")
    print(f"written to {RESULTS.relative_to(Path.cwd())}")


def positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return number


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.concurrency")
    parser.add_argument("--model", type=Path, default=MODEL, help="GGUF to serve")
    parser.add_argument("--requests", type=positive, default=48, help="requests of each way")
    parser.add_argument("--rounds", type=positive, default=5, help="times all the ways are run")
    parser.add_argument(
        "--threads", type=positive, default=os.cpu_count() or 1, help="threads of the engine"
    )
    parsed = parser.parse_args(arguments)
    if not parsed.model.is_file():
        parser.error(f"--model: no file {parsed.model}")
    if parsed.requests < max(SIZES):
        parser.error(f"--requests: at least {max(SIZES)}, so that every size can be filled")
    return parsed


def main() -> None:
    arguments = parse(sys.argv[1:])
    rounds = asyncio.run(run(arguments))
    rows = summarise(rounds)
    show(rows)
    save(arguments, rounds, rows)


if __name__ == "__main__":
    main()
