"""A fleet on paper that runs: `python -m bench.simulate`.

The balancer's own core decides, in virtual time, for agents' own sessions before simulated hosts.
`--scale` shows what a decision costs over the number of agents, up to 10,000 with 160,000 slots and
a million requests. Without it, policies are compared on the traces, with and without losses of
agents. `--failures` loses agents that have no models of their own: the controller places models
again.
"""

import argparse
import gc
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from random import Random

from bench.harness import Flags, at_least, print_table, save
from bench.simulation.arrivals import TRACES
from bench.simulation.fluid_host import HostKind, Speeds
from bench.simulation.looks import Look, desired_by, look_costs
from bench.simulation.outcome import Outcome, percentile
from bench.simulation.world import Desired, Losses, Policy, World

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

    @property
    def busy(self) -> float:
        """The share of all slots that was busy."""
        return self.outcome.busy_seconds / self.outcome.seconds / self.num_agents / HOST.slots


def simulated(
    trace: str,
    policy: str,
    *,
    agents: int,
    requests: int,
    rate: float,
    losses: Losses | None,
    seed: int,
    desired: Desired | None = None,
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
        desired=desired,
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
    desired = Desired(state=desired_by(given.agents), load_seconds=LOAD_SECONDS)
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
            desired=desired,
        )
        runs.append(replace(run, policy=name))
    return runs


def of_failures(runs: list[Run]) -> Iterator[list[str]]:
    """Rows: what losses of agents cost."""
    for run in runs:
        one = run.outcome
        yield [
            run.policy,
            *(f"{each:,}" for each in (one.num_losses, one.num_orders)),
            _both(one.repairs),
            *(f"{each:,}" for each in (one.num_moved, one.num_failed)),
            *map(_both, (one.waits, one.first_tokens)),
            f"{one.num_lost / max(one.num_computed, 1):.1%}",
        ]


def of_scale(runs: list[Run], looks: list[Look]) -> Iterator[list[str]]:
    """Rows: costs over the number of agents."""
    for run, look in zip(runs, looks, strict=True):
        one = run.outcome
        yield [
            *(f"{n:,}" for n in (run.num_agents, run.num_agents * HOST.slots, one.num_ended)),
            f"{run.busy:.2f}",
            *(f"{each:.0f}" for each in (run.wall_seconds, run.cpu_seconds)),
            *(f"{each:.0f}" for each in (one.microseconds_of_event, one.microseconds)),
            f"{look.milliseconds:.1f}",
            f"{look.first_milliseconds:.0f}",
        ]


def of_policies(runs: list[Run]) -> Iterator[list[str]]:
    """Rows: each trace with each policy."""
    for run in runs:
        one = run.outcome
        yield [
            f"{run.trace}, {run.num_agents:,}",
            run.policy,
            f"{run.busy:.2f}",
            *map(_both, (one.waits, one.first_tokens)),
            f"{one.fairness:.3f}",
            f"{one.cached_share:.2f}",
            f"{one.num_moved:,}",
            f"{one.num_lost / max(one.num_computed, 1):.1%}",
            f"{one.microseconds:.0f}",
        ]


def _both(seconds: list[float]) -> str:
    return f"{percentile(seconds, 0.5):.2f}, {percentile(seconds, 0.99):.1f}"


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


def main() -> None:
    flags = Flags("simulate", __doc__)
    flags.add_argument("--scale", action="store_true", help="the cost over the number of agents")
    flags.add_argument("--failures", action="store_true", help="models are placed again")
    flags.add_argument("--agents", type=at_least(1), help="12; with --scale at most so many")
    flags.add_argument("--requests", type=at_least(1), help="in each run at most so many")
    flags.add_argument("--loss-every", type=float, default=0.0, help="seconds between losses")
    flags.add_argument("--seed", type=int, default=1)
    given = flags.parse_args()
    given.agents = given.agents or (10_000 if given.scale else 12)
    given.requests = given.requests or (1_000_000 if given.scale else 5000)
    looks: list[Look] = []
    if given.scale:
        runs = scale(given)
        looks = [look_costs(run.num_agents) for run in runs]
        columns: tuple[str, ...] = (
            "agents",
            "slots",
            "requests",
            "busy",
            "seconds",
            "of a core",
            "µs an event",
        )
        columns += ("µs a request", "ms a look", "ms the first placement")
        title = "Processor time over the number of agents"
        print_table(title, columns, of_scale(runs, looks), left=0)
    elif given.failures:
        runs = failed(given)
        columns = ("losses", "agents lost", "orders", "until served again", "moved")
        columns += ("ended with an error", "wait", "first token", "computed again")
        title = "Agents that are lost, and models that are placed again; virtual seconds"
        print_table(title, columns, of_failures(runs))
    else:
        runs = compared(given)
        columns = ("trace, agents", "policy", "slots busy", "wait", "first token", "fairness")
        columns += ("cached", "moved", "again", "µs")
        title = "Virtual seconds: median, 99 %; µs of the balancer's core a request"
        print_table(title, columns, of_policies(runs), left=2)
    found = {"runs": [summary(run) for run in runs], "looks": [asdict(each) for each in looks]}
    save("simulate", found)


if __name__ == "__main__":
    main()
