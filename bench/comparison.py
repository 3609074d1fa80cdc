"""Servers that do the same work in turn: figures of each round, and ratios within the rounds."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bench import prompts, ways
from bench.figures import RequestsFailed, Rounds, check, median_of, ratio, shown
from bench.harness import Flags, in_turn, model, print_table
from bench.models import made
from bench.scenarios import Scenario
from bench.sides import Load, Side

Start = Callable[[AsyncExitStack, Load], Awaitable[Side]]
Starts = Mapping[str, Start]
"""How each side is started, by its name. The first is compared with each of the others."""

_WARM_UP_SEED, _AGING_SEED = 0, -1


@dataclass(frozen=True, slots=True)
class Outcome:
    """Each side's figures, a mapping each round, and the commands that started it."""

    scenario: Scenario
    figures: Rounds
    commands: dict[str, list[str]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Figures that every round of every side has."""
        first, *others = [each for rounds in self.figures.values() for each in rounds]
        return [name for name in first if all(name in each for each in others)]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Sides that are compared."""
        own, *others = self.figures
        return [(own, other) for other in others]


async def compare(
    scenario: Scenario, starts: Starts, *, rounds: int, threads: int, age: int = 0
) -> Outcome:
    """Starts all sides and takes the rounds. Raises `RequestsFailed`.

    Each side answers `age` long prompts before: then its caches are full and its cells scattered.
    """
    load = Load(made(scenario.model), scenario.slots, scenario.context_size, threads)
    outcome = Outcome(scenario, {name: [] for name in starts})
    if scenario.starts_cold:
        await _measure_cold(load, starts, outcome, rounds)
    else:
        await _measure_warm(load, starts, outcome, rounds, age)
    return outcome


async def _measure_warm(
    load: Load, starts: Starts, outcome: Outcome, rounds: int, age: int
) -> None:
    """All rounds with the same servers."""
    async with AsyncExitStack() as stack:
        sides = {name: await start(stack, load) for name, start in starts.items()}
        outcome.commands.update({name: side.commands for name, side in sides.items()})
        await _warm_up(sides, load.slots, age)
        for number, name in in_turn(list(sides), rounds):
            figures = await outcome.scenario.measure(sides[name].client, number)
            _note(outcome, number, name, figures)


async def _measure_cold(load: Load, starts: Starts, outcome: Outcome, rounds: int) -> None:
    """Each round with servers of its own, which run alone."""
    for number, name in in_turn(list(starts), rounds):
        async with AsyncExitStack() as stack:
            side = await starts[name](stack, load)
            outcome.commands[name] = side.commands
            _note(outcome, number, name, await outcome.scenario.measure(side.client, number))


async def _warm_up(sides: Mapping[str, Side], slots: int, age: int) -> None:
    """Short requests; all sides must find the same number of tokens in the same prompts."""
    requests = prompts.uniform(_WARM_UP_SEED, slots, num_words=64, num_tokens=8)
    requests += prompts.uniform(_AGING_SEED, age, num_words=256, num_tokens=8)
    counts = {}
    for name, side in sides.items():
        samples = await ways.continuous(side.client, requests, size=slots)
        check(samples)
        counts[name] = sorted(sample.num_prompt_tokens for sample in samples)
    if any(each != counts[name] for each in counts.values()):
        raise RequestsFailed(f"the prompts are not the same to all: {counts}")


def _note(outcome: Outcome, number: int, name: str, figures: dict[str, float]) -> None:
    outcome.figures[name].append(figures)
    told = ", ".join(f"{figure} {shown(figure, value)}" for figure, value in figures.items())
    print(f"{outcome.scenario.name} {number}, {name}: {told}", flush=True)


# ---- results


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    """One row for each figure and pair of sides."""
    return [
        _row(outcome, name, own, other) for name in outcome.names for own, other in outcome.pairs
    ]


def _row(outcome: Outcome, name: str, own: str, other: str) -> dict[str, Any]:
    against = ratio(outcome.figures[own], outcome.figures[other], name)
    goal = outcome.scenario.goals.get(name) if other == "llama-server" else None
    return {
        "scenario": outcome.scenario.name,
        "model": outcome.scenario.model.name,
        "figure": name,
        **{side: median_of(outcome.figures[side], name) for side in (own, other)},
        "ratio": asdict(against),
        "ratio_text": str(against),
        "goal": None if goal is None else str(goal),
        "is_met": None if goal is None else goal.is_met(against.median),
    }


def show(title: str, outcomes: Sequence[Outcome]) -> None:
    """Print a table of all rows."""
    sides = list(outcomes[0].figures)
    lines: list[list[str] | None] = []
    for outcome in outcomes:
        work = f"{outcome.scenario.name} ({outcome.scenario.model.name})"
        for row in rows(outcome):
            name = row["figure"]
            medians = (shown(name, row[side]) for side in sides if side in row)
            met = {None: "", True: "yes", False: "no"}[row["is_met"]]
            lines.append([work, name, *medians, row["ratio_text"], row["goal"] or "", met])
        lines.append(None)
    headings = ("work", "figure", *sides, "ratio", "to reach", "")
    print_table(f"{title}; ratios: median (least to most) of the rounds", headings, lines, left=2)


def document(outcomes: Sequence[Outcome], **facts: object) -> dict[str, Any]:
    """All there is to know about a run, and `facts`."""
    return {
        **facts,
        "rows": [row for outcome in outcomes for row in rows(outcome)],
        "scenarios": [
            {
                "name": outcome.scenario.name,
                "work": outcome.scenario.work,
                "model": outcome.scenario.model.name,
                "slots": outcome.scenario.slots,
                "commands": outcome.commands,
                **outcome.figures,
            }
            for outcome in outcomes
        ],
    }


# ---- flags


def add_flags(flags: Flags, scenarios: Mapping[str, Scenario]) -> None:
    """Add the flags of every comparison of servers."""
    help = "what to run, repeatable; all without it, but those of many streams"
    flags.add_argument("--scenario", action="append", choices=scenarios, help=help)
    help = "instead of a scenario's own, repeatable: a name of bench.models, demo, smollm2, a file"
    flags.add_argument("--model", action="append", type=model, help=help)
    flags.rounds(5)
    flags.threads()


def chosen(
    names: Sequence[str], scenarios: Mapping[str, Scenario], models: Sequence[Any] | None
) -> list[Scenario]:
    """The scenarios of these names, each with each of the models if there are any."""
    named = [scenarios[name] for name in dict.fromkeys(names)]
    return [replace(each, model=model) for model in models or () for each in named] or named
