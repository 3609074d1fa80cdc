"""Arriero against a former checkout of itself: `python -m bench.against_former FOLDER`.

FOLDER is another work tree of the project with an environment of its own (`git worktree add`, then
`scripts/install` there). Both serve the same model with the same slots, context and threads, and
are asked the same things in turn. Ratios are this checkout to the former one.
"""

import argparse
from functools import partial
from pathlib import Path

from bench.comparison import Outcome, Starts, add_flags, chosen, compare, document, show
from bench.harness import Flags, finished, save
from bench.scenarios import OF_SETTINGS, SCENARIOS
from bench.sides import start_ours

ALL = SCENARIOS | OF_SETTINGS


async def run(given: argparse.Namespace) -> list[Outcome]:
    """Raises `RequestsFailed`."""
    former = partial(start_ours, programs=given.former / ".venv" / "bin")
    starts: Starts = {"now": start_ours, "former": former}
    return [
        await compare(scenario, starts, rounds=given.rounds, threads=given.threads)
        for scenario in chosen(given.scenario or list(SCENARIOS), ALL, given.model)
    ]


def main() -> None:
    flags = Flags("against_former", __doc__)
    flags.add_argument("former", type=Path, help="the other checkout")
    add_flags(flags, ALL)
    given = flags.parse_args()
    if not (given.former / ".venv" / "bin" / "balancer").exists():
        flags.error(f"{given.former} has no environment; run scripts/install there")
    outcomes = finished(run(given))
    show("Now against former", outcomes)
    save("against_former", document(outcomes, threads=given.threads, rounds=given.rounds))


if __name__ == "__main__":
    main()
