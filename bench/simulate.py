"""A fleet on paper that runs: `python -m bench.simulate`.

The balancer's own core decides, in virtual time, for agents' own sessions before simulated hosts.
`--scale` shows what a decision costs over the number of agents, up to 10,000 with 160,000 slots and
a million requests. Without it, policies are compared on the traces, with and without losses of
agents. `--failures` loses agents that have no models of their own: the controller places models
again. `--plots FOLDER` draws what came of it.
"""

import argparse
import gc
import math
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random

from rich.table import Table

from bench.arguments import at_least
from bench.routing.host import Speeds
from bench.routing.simulation import HostKind
from bench.simulation.arrivals import TRACES
from bench.simulation.looks import Look, look_costs, wish_for
from bench.simulation.outcome import Outcome, percentile
from bench.simulation.plot import Axis, line_chart
from bench.simulation.world import Losses, Policy, Wished, World
from bench.store import save, wide_console

HOST = HostKind(slots=16, cache=65_536, speeds=Speeds(prefill=3000.0, step=0.02, sequence=0.001))
SCALES = ((10, 10_000), (100, 20_000), (1000, 100_000), (10_000, 1_000_000))
SCALE_RATE = 1.0
"""Requests a second for each agent, of `azure-chat`."""

POLICIES = {
    "by cost, fair": Policy(),
    "by load, fair": Policy(routing="load"),
    "by cost, one queue": Policy(callers_apart=False),
    "by load, one queue": Policy(routing="load", callers_apart=False),
}
RATES = {"poisson": 6.0, "bursts": 4.0, "azure-chat": 1.0, "azure-code": 1.5, "mooncake": 0.4}
"""Requests a second for each agent: what a trace's prompts and answers leave room for."""


FAILURES = {
    "no losses": None,
    "back after 15 s": Losses(every=20.0, away=15.0),
    "back after 120 s": Losses(every=20.0, away=120.0),
}
"""Places are reserved for 30 s, while others serve the model (`balancer/control/placement.py`)."""

LOAD_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Run:
    """What was simulated, what came of it, and how long that took: by the clock and of a core."""

    trace: str
    policy: str
    num_agents: int
    outcome: Outcome
    wall_seconds: float
    cpu_seconds: float


def simulated(
    trace: str,
    policy: str,
    *,
    agents: int,
    requests: int,
    rate: float,
    losses: Losses | None,
    seed: int,
    wished: Wished | None = None,
) -> Run:
    gc.collect()
    gc.disable()  # the balancer itself looks for garbage rarely; here it would be most of the time
    begun, cpu_begun = time.perf_counter(), time.process_time()
    world = World(
        [HOST] * agents,
        TRACES[trace](Random(seed), rate * agents),
        num_requests=requests,
        policy=POLICIES[policy],
        losses=losses,
        wished=wished,
        seed=seed,
    )
    outcome = world.run()
    gc.enable()
    wall, cpu = time.perf_counter() - begun, time.process_time() - cpu_begun
    return Run(trace, policy, agents, outcome, wall, cpu)


def scale(given: argparse.Namespace) -> list[Run]:
    """One trace over the number of agents."""
    runs = []
    for agents, requests in SCALES:
        if agents <= given.agents:
            num = min(requests, given.requests)
            run = simulated(
                "azure-chat",
                "by cost, fair",
                agents=agents,
                requests=num,
                rate=SCALE_RATE,
                losses=None,
                seed=given.seed,
            )
            print(f"{agents} agents: {run.wall_seconds:.0f} s", flush=True)
            runs.append(run)
    return runs


def compared(given: argparse.Namespace) -> list[Run]:
    """Every trace with every policy, and one with agents that are lost."""
    runs = []
    for trace, rate in RATES.items():
        for policy in POLICIES:
            runs.append(
                simulated(
                    trace,
                    policy,
                    agents=given.agents,
                    requests=given.requests,
                    rate=rate,
                    losses=Losses(every=given.loss_every) if given.loss_every else None,
                    seed=given.seed,
                )
            )
        print(f"{trace}: done", flush=True)
    return runs


def failed(given: argparse.Namespace) -> list[Run]:
    """Two models; agents that are lost come back soon, or late, or none is lost."""
    wished = Wished(state=wish_for(given.agents), load_seconds=LOAD_SECONDS)
    runs = []
    for name, losses in FAILURES.items():
        run = simulated(
            "azure-chat",
            "by cost, fair",
            agents=given.agents,
            requests=given.requests,
            rate=RATES["azure-chat"] / 2,
            losses=losses,
            seed=given.seed,
            wished=wished,
        )
        runs.append(replace(run, policy=name))
    return runs


def show_failures(runs: list[Run]) -> None:
    table = Table(title="Agents that are lost, and models that are placed again; virtual seconds")
    table.add_column("losses")
    figures = ("agents lost", "orders", "until served again", "moved", "ended with an error")
    for heading in (*figures, "wait", "first token", "computed again"):
        table.add_column(heading, justify="right")
    for run in runs:
        one = run.outcome
        table.add_row(
            run.policy,
            f"{one.num_losses:,}",
            f"{one.num_orders:,}",
            _both(one.repairs),
            f"{one.num_moved:,}",
            f"{one.num_failed:,}",
            _both(one.waits),
            _both(one.first_tokens),
            f"{one.num_lost / max(one.num_computed, 1):.1%}",
        )
    wide_console().print(table)


def show_scale(runs: list[Run], looks: list[Look]) -> None:
    """Costs over the number of agents."""
    table = Table(title="Processor time over the number of agents")
    for heading in ("agents", "slots", "requests", "busy", "seconds", "of a core"):
        table.add_column(heading, justify="right")
    for heading in ("µs an event", "µs a request", "ms a look", "ms the first placement"):
        table.add_column(heading, justify="right")
    for run, look in zip(runs, looks, strict=True):
        one = run.outcome
        table.add_row(
            f"{run.num_agents:,}",
            f"{run.num_agents * HOST.slots:,}",
            f"{one.num_ended:,}",
            f"{one.busy_seconds / one.seconds / run.num_agents / HOST.slots:.2f}",
            f"{run.wall_seconds:.0f}",
            f"{run.cpu_seconds:.0f}",
            f"{one.microseconds_of_event:.0f}",
            f"{one.microseconds:.0f}",
            f"{look.milliseconds:.1f}",
            f"{look.first_milliseconds:.0f}",
        )
    wide_console().print(table)


def show(runs: list[Run]) -> None:
    table = Table(title="Virtual seconds: median, 99 %; µs of the balancer's core a request")
    for heading in ("trace, agents", "policy"):
        table.add_column(heading)
    figures = ("slots busy", "wait", "first token", "fairness", "cached", "moved", "again", "µs")
    for heading in figures:
        table.add_column(heading, justify="right")
    for run in runs:
        one = run.outcome
        table.add_row(
            f"{run.trace}, {run.num_agents:,}",
            run.policy,
            f"{one.busy_seconds / one.seconds / run.num_agents / HOST.slots:.2f}",
            _both(one.waits),
            _both(one.first_tokens),
            f"{one.fairness:.3f}",
            f"{one.cached_share:.2f}",
            f"{one.num_moved:,}",
            f"{one.num_lost / max(one.num_computed, 1):.1%}",
            f"{one.microseconds:.0f}",
        )
    wide_console().print(table)


def _both(seconds: list[float]) -> str:
    return f"{percentile(seconds, 0.5):.2f}, {percentile(seconds, 0.99):.1f}"


def draw(runs: list[Run], folder: Path) -> None:
    """A chart of first tokens for each trace; of the cost over the number of agents, if scaled."""
    folder.mkdir(parents=True, exist_ok=True)
    if len({run.num_agents for run in runs}) > 1:
        points = [(run.num_agents, run.outcome.microseconds) for run in runs]
        most = _round_above(max(cost for _, cost in points))
        chart = line_chart(
            "Processor time of the balancer's core for a request, µs",
            "agents",
            {"arrival to end": points},
            Axis(points[0][0], points[-1][0], is_logarithmic=True),
            Axis(0, most),
        )
        (folder / "scale.svg").write_text(chart)
        return
    for trace in {run.trace: None for run in runs}:
        lines = {
            run.policy: _distribution(run.outcome.first_tokens)
            for run in runs
            if run.trace == trace
        }
        longest = max(points[-1][0] for points in lines.values())
        chart = line_chart(
            f"{trace}: share of requests whose first token came",
            "within so many seconds",
            lines,
            Axis(0.05, longest, is_logarithmic=True),
            Axis(0, 1),
        )
        (folder / f"{trace}.svg").write_text(chart)


def _round_above(value: float) -> float:
    """1, 2, 4 or 8 times a power of ten: a quarter of it is a round number, too."""
    power = 10 ** math.floor(math.log10(value))
    return float(next(times * power for times in (1, 2, 4, 8, 10) if times * power >= value))


def _distribution(values: list[float]) -> list[tuple[float, float]]:
    """100 points of the cumulative distribution."""
    return [(percentile(values, part / 100), part / 100) for part in range(1, 101)]


def summary(run: Run) -> dict[str, object]:
    """What is stored of a run."""
    one = run.outcome
    return {
        "trace": run.trace,
        "policy": run.policy,
        "agents": run.num_agents,
        "requests": one.num_ended,
        "failed": one.num_failed,
        "moved": one.num_moved,
        "waits": [percentile(one.waits, share) for share in (0.5, 0.9, 0.99)],
        "first_tokens": [percentile(one.first_tokens, share) for share in (0.5, 0.9, 0.99)],
        "fairness": one.fairness,
        "cached_share": one.cached_share,
        "computed_again": one.num_lost,
        "microseconds": one.microseconds,
        "virtual_seconds": one.seconds,
        "wall_seconds": run.wall_seconds,
        "cpu_seconds": run.cpu_seconds,
        "microseconds_of_event": one.microseconds_of_event,
        "losses": one.num_losses,
        "orders": one.num_orders,
        "repairs": one.repairs,
    }


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.simulate")
    parser.add_argument("--scale", action="store_true", help="the cost over the number of agents")
    parser.add_argument("--failures", action="store_true", help="models are placed again")
    parser.add_argument("--agents", type=at_least(1), help="12; with --scale at most so many")
    parser.add_argument("--requests", type=at_least(1), help="in each run at most so many")
    parser.add_argument("--loss-every", type=float, default=0.0, help="seconds between losses")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plots", type=Path, help="a folder for charts")
    given = parser.parse_args(arguments)
    given.agents = given.agents or (10_000 if given.scale else 12)
    given.requests = given.requests or (1_000_000 if given.scale else 5000)
    return given


def main() -> None:
    given = parse(sys.argv[1:])
    looks: list[Look] = []
    if given.scale:
        runs = scale(given)
        looks = [look_costs(run.num_agents) for run in runs]
        show_scale(runs, looks)
    elif given.failures:
        runs = failed(given)
        show_failures(runs)
    else:
        runs = compared(given)
        show(runs)
    if given.plots:
        draw(runs, given.plots)
    found = {"runs": [summary(run) for run in runs], "looks": [asdict(each) for each in looks]}
    save("simulate", found)


if __name__ == "__main__":
    main()
