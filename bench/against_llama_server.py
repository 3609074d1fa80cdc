"""Arriero against llama.cpp's own llama-server: `python -m bench.against_llama_server`.

Both serve the same model with the same slots, context and threads and are asked the same things,
in turn. Our client goes through the balancer, theirs straight to the server. A round runs both
once, and every other round in the other order; a ratio is the median of the rounds' ratios.
"""

import argparse
from functools import partial
from importlib.metadata import version

from bench import peer
from bench.comparison import Outcome, Starts, add_flags, chosen, compare, document, show
from bench.harness import Flags, finished, save
from bench.scenarios import CROWDS, SCENARIOS
from bench.sides import start_ours, start_theirs

ALL = SCENARIOS | CROWDS


async def run(given: argparse.Namespace) -> list[Outcome]:
    """Raises `RequestsFailed`."""
    theirs = partial(start_theirs, repacks=not given.no_repack)
    starts: Starts = {"arriero": start_ours, "llama-server": theirs}
    return [
        await compare(scenario, starts, rounds=given.rounds, threads=given.threads)
        for scenario in chosen(given.scenario or list(SCENARIOS), ALL, given.model)
    ]


def main() -> None:
    flags = Flags("against_llama_server", __doc__)
    add_flags(flags, ALL)
    flags.add_argument(
        "--no-repack",
        action="store_true",
        help="llama-server without kernels that repack weights, as its stock build has to run on "
        "processors with AMX",
    )
    given = flags.parse_args()
    peer.built()
    outcomes = finished(run(given))
    show("Arriero against llama-server", outcomes)
    versions = {name: version(name) for name in ("arriero", "llama-cpp-python")}
    facts = {
        "versions": versions | {"llama-server": peer.server_version()},
        "peer_options": peer.options(),
        "threads": given.threads,
        "rounds": given.rounds,
    }
    save("against_llama_server", document(outcomes, **facts))


if __name__ == "__main__":
    main()
