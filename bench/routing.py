"""Choosing agents by cost against choosing them by load: `python -m bench.routing`.

The balancer's own core with simulated agents in virtual time (`bench.simulation`): three agents
that are alike, and a fast one beside three slow ones. `one` has the slots, the cache and the speed
of all three agents in one.

A client sends its conversation's turns one after the other, each when the answer to the one before
has come and a pause is over. First tokens and throughput are ratios to choosing by load; the cached
share is one to `one`'s.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from random import Random
from statistics import mean, median

from bench.harness import Flags, at_least, print_table, save
from bench.simulation.arrivals import Arrival
from bench.simulation.fluid_host import HostKind, Speeds
from bench.simulation.outcome import Outcome
from bench.simulation.world import Policy, World

HOST = HostKind()
ALIKE = [HOST] * 3
IN_ONE = [HostKind(slots=12, cache=3 * HOST.cache, speeds=Speeds(prefill=900.0, sequence=0.01 / 3))]
MIXED = [
    HostKind(slots=8, cache=65_536, speeds=Speeds(prefill=3000.0, step=0.02, sequence=0.001)),
    *[HostKind(speeds=Speeds(prefill=100.0, step=0.08, sequence=0.03))] * 3,
]
FLEETS = {"three alike": ALIKE, "one fast, three slow": MIXED}
ROUTINGS = ("load", "cost")
PART = 32
"""Tokens of a message: what a turn had before is a chain of whole ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Conversations that are alike, and begin within so many `seconds`. Sizes are in tokens.

    Each begins with one of `systems` instructions of `system` tokens. A turn adds `first` tokens,
    later ones `later`, about `pause` seconds after the answer before.
    """

    count: int
    seconds: float
    systems: int = 1
    system: int = 0
    first: int
    later: int = 0
    turns: int = 1
    answer: int
    pause: float = 0.0


WORKLOADS = {
    "chats": Workload(
        count=30, seconds=30, system=60, first=200, later=100, turns=8, answer=40, pause=8
    ),
    "shared": Workload(count=120, seconds=60, systems=12, system=1500, first=30, answer=20),
    "loops": Workload(
        count=10, seconds=30, system=500, first=1000, later=150, turns=20, answer=30, pause=0.2
    ),
    "unrelated": Workload(count=120, seconds=60, first=200, answer=30),
}
"""People who talk; questions to long instructions; programs that call tools; nothing in common."""


class Conversations:
    """The first turns of a workload, and those that follow; a seed decides everything."""

    def __init__(self, workload: Workload, seed: int) -> None:
        random = Random(seed)
        size = workload.system + workload.first
        self._workload = workload
        self.first = sorted(
            (
                Arrival(
                    at=random.uniform(0, workload.seconds),
                    caller=0,
                    session=number,
                    num_prompt=size,
                    num_answer=workload.answer,
                    document=random.randrange(workload.systems),
                    num_shared=workload.system,
                )
                for number in range(workload.count)
            ),
            key=lambda each: each.at,
        )
        self._pauses = [
            [random.expovariate(1 / workload.pause) for _ in range(workload.turns - 1)]
            for _ in range(workload.count)
        ]

    def follow_up(self, arrival: Arrival, now: float) -> Arrival | None:
        """The next turn of a conversation."""
        if not self._pauses[arrival.session]:
            return None
        size = arrival.num_prompt + arrival.num_answer + self._workload.later
        return replace(arrival, at=now + self._pauses[arrival.session].pop(), num_prompt=size)


def simulated(hosts: list[HostKind], name: str, routing: str, seed: int) -> Outcome:
    """All conversations, from the first question to the last answer."""
    workload = WORKLOADS[name]
    conversations = Conversations(workload, seed)
    world = World(
        hosts,
        iter(conversations.first),
        num_requests=workload.count * workload.turns,
        policy=Policy(routing=routing, callers_apart=False),
        follow_up=conversations.follow_up,
        part=PART,
    )
    return world.run()


def figures(outcome: Outcome) -> dict[str, float]:
    """What is compared."""
    return {
        "first token, s": mean(outcome.first_tokens),
        "requests/s": outcome.num_ended / outcome.seconds,
        "cached share": outcome.cached_share,
    }


Seeds = list[dict[str, dict[str, float]]]
"""For each seed, the figures of each way."""


def drawn(hosts: list[HostKind], name: str, seeds: int) -> Seeds:
    """Each way with the same conversations; and all in one, if the agents are alike."""
    ways = [(routing, hosts, routing) for routing in ROUTINGS]
    if hosts is ALIKE:
        ways.append(("one", IN_ONE, "load"))
    return [
        {way: figures(simulated(where, name, routing, seed)) for way, where, routing in ways}
        for seed in range(1, seeds + 1)
    ]


def row(name: str, found: Seeds) -> Iterator[str]:
    """Medians over the seeds."""
    yield name
    for figure in ("first token, s", "requests/s"):
        yield " → ".join(f"{median(one[way][figure] for one in found):.2f}" for way in ROUTINGS)
        yield f"{median(one['cost'][figure] / one['load'][figure] for one in found):.2f}"
    shares = [[one[way]["cached share"] for one in found] for way in ROUTINGS]
    yield " → ".join(f"{median(each):.2f}" for each in shares)
    ones = [one["one"]["cached share"] for one in found if "one" in one]
    has_one = bool(ones) and all(ones)
    yield f"{median(a / b for a, b in zip(shares[1], ones, strict=True)):.2f}" if has_one else "-"


def main() -> None:
    flags = Flags("routing", __doc__)
    flags.add_argument("--seeds", type=at_least(1), default=5, help="draws of each workload")
    flags.add_argument("--only", choices=WORKLOADS, action="append", help="these workloads")
    given = flags.parse_args()
    columns = ("workload", "first token, s", "ratio", "requests/s", "ratio", "cached share")
    results: dict[str, dict[str, Seeds]] = {}
    for fleet, hosts in FLEETS.items():
        results[fleet] = {name: drawn(hosts, name, given.seeds) for name in given.only or WORKLOADS}
        rows = (list(row(name, found)) for name, found in results[fleet].items())
        print_table(f"{fleet}, by load → by cost", (*columns, "to one"), rows)
    save("routing", {"workloads": {n: asdict(w) for n, w in WORKLOADS.items()}, "found": results})


if __name__ == "__main__":
    main()
