"""An agent with other settings against the same agent: `python -m bench.against_settings …`.

    python -m bench.against_settings kv_layout=streams --scenario streams --age 32
    python -m bench.against_settings deterministic=true --scenario alone --scenario prompts
    python -m bench.against_settings speculate=8 --scenario again --scenario new

Both agents, each with a balancer, are asked the same things in turn. Ratios are with the settings
to without. `--to NAME=VALUE` gives the other agent settings, too.
"""

import argparse
from functools import partial
from typing import Any

from bench.comparison import Outcome, Starts, add_flags, chosen, compare, document, show
from bench.harness import Flags, at_least, finished, save
from bench.scenarios import OF_SETTINGS, SCENARIOS
from bench.sides import start_ours

ALL = SCENARIOS | OF_SETTINGS


def setting(text: str) -> tuple[str, str]:
    """One of an agent's settings."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, not {text!r}")
    return name.removeprefix("--").replace("-", "_"), value


async def run(given: argparse.Namespace) -> list[Outcome]:
    """Raises `RequestsFailed`."""
    own: dict[str, Any] = dict(given.settings)
    other: dict[str, Any] = dict(given.to)
    starts: Starts = {
        "with": partial(start_ours, **own),
        "without": partial(start_ours, **other),
    }
    size = {"rounds": given.rounds, "threads": given.threads, "age": given.age}
    names = given.scenario or list(OF_SETTINGS)
    return [await compare(each, starts, **size) for each in chosen(names, ALL, given.model)]


def main() -> None:
    flags = Flags("against_settings", __doc__)
    flags.formatter_class = argparse.RawDescriptionHelpFormatter
    flags.add_argument("settings", nargs="+", type=setting, metavar="NAME=VALUE")
    flags.add_argument("--to", action="append", type=setting, default=[], metavar="NAME=VALUE")
    flags.add_argument("--age", type=at_least(0), default=0, help="long prompts asked before (0)")
    add_flags(flags, ALL)
    given = flags.parse_args()
    outcomes = finished(run(given))
    show(f"With {given.settings} and without", outcomes)
    facts = {"settings": given.settings, "to": given.to, "age": given.age}
    save("against_settings", document(outcomes, threads=given.threads, **facts))


if __name__ == "__main__":
    main()
