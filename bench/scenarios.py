"""The work by which servers are compared, and what is to be reached beside llama-server."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from bench import newcomer, prompts, ways
from bench.client import Client
from bench.dialects import Request
from bench.figures import FIRST_TOKEN, LONGEST_GAP, TOKENS_PER_SECOND, of_burst
from bench.models import DEMO, Q06, TINY, Real, Shape
from demo.conversations import TEMPLATE, load_conversations
from demo.prompts import compile_template, render

SLOTS = 8
"""Slots of both servers, and requests at once."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on the ratio of our figure to theirs."""

    at_least: float | None = None
    at_most: float | None = None

    def is_met(self, ratio: float) -> bool:
        """Whether `ratio` keeps within the bound."""
        return (self.at_least is None or ratio >= self.at_least) and (
            self.at_most is None or ratio <= self.at_most
        )

    def __str__(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """`measure` runs one round against one server; `seed` decides what is asked.

    With `starts_cold` each round has servers of its own, which have answered nothing yet and run
    alone; otherwise both run all the time and are warmed up.
    """

    name: str
    work: str
    model: Shape | Real
    context_size: int
    measure: Callable[[Client, int], Awaitable[dict[str, float]]]
    goals: Mapping[str, Goal] = field(default_factory=dict)
    starts_cold: bool = False
    slots: int = SLOTS


async def _burst(
    make_requests: Callable[[int], list[Request]], client: Client, seed: int, size: int = SLOTS
) -> dict[str, float]:
    return of_burst(await ways.continuous(client, make_requests(seed), size=size))


def _streams(seed: int) -> list[Request]:
    return prompts.uniform(seed, 16, num_words=64, num_tokens=48)


def _prefix(seed: int) -> list[Request]:
    return prompts.sharing_prefix(seed, 16, num_common=400, num_own=16, num_tokens=16)


def _overhead(seed: int) -> list[Request]:
    return prompts.uniform(seed, 64, num_words=64, num_tokens=128)


def _mixed(seed: int) -> list[Request]:
    return prompts.mixed(seed, 96, num_words=64, lengths_seed=seed)


def _alone(seed: int) -> list[Request]:
    return prompts.uniform(seed, 2, num_words=16, num_tokens=96)


def _prompts(seed: int) -> list[Request]:
    return prompts.uniform(seed, 4, num_words=300, num_tokens=2)


def _questions(seed: int, *, repeated: bool) -> list[Request]:
    """Eight questions of the demo's corpus with long answers; others in each of the first rounds.

    If `repeated`, the conversation has the question and its answer already.
    """
    template = compile_template(TEMPLATE.read_text())
    long = [one for one in load_conversations() if one.id.startswith("long-")]
    first = seed * SLOTS % len(long)
    asked = []
    for one in (long + long)[first : first + SLOTS]:
        before = [*one.prompt_messages, one.answer_message] if repeated else []
        asked.append(Request(render(template, [*before, *one.prompt_messages]), 128))
    return asked


_ALL = (
    Scenario(
        "streams",
        "8 streams, 64-word prompts, 48 tokens each, 16 requests",
        Q06,
        2048,
        partial(_burst, _streams),
        {TOKENS_PER_SECOND: Goal(at_least=1.0)},
    ),
    Scenario(
        "prefix",
        "16 requests, 8 at once, a common 400-word prefix, 16 own words, 16 tokens each",
        Q06,
        2048,
        partial(_burst, _prefix),
        {TOKENS_PER_SECOND: Goal(at_least=3.0), FIRST_TOKEN: Goal(at_most=0.35)},
    ),
    Scenario(
        "stall",
        "7 streams running, a 1,200-word prompt arrives",
        Q06,
        2048,
        newcomer.beside_streams,
        {LONGEST_GAP: Goal(at_most=0.1), FIRST_TOKEN: Goal(at_most=1.5)},
    ),
    Scenario(
        "newcomer",
        "7 streams of 16-word prompts just started, a 1,200-word prompt arrives",
        Q06,
        2048,
        newcomer.at_cold_servers,
        {FIRST_TOKEN: Goal(at_most=1.5)},
        starts_cold=True,
    ),
    Scenario(
        "overhead",
        "8 streams, 64-word prompts, 128 tokens each, 64 requests",
        TINY,
        512,
        partial(_burst, _overhead),
        {TOKENS_PER_SECOND: Goal(at_least=1.0)},
    ),
    Scenario(
        "mixed",
        "96 requests for 8 to 128 tokens each, 64-word prompts, 8 at once",
        TINY,
        512,
        partial(_burst, _mixed),
    ),
)
SCENARIOS = {scenario.name: scenario for scenario in _ALL}

_OF_SETTINGS = (
    Scenario(
        "alone",
        "two requests one after the other, 16-word prompts, 96 tokens each",
        DEMO,
        1024,
        partial(_burst, _alone, size=1),
    ),
    Scenario(
        "prompts",
        "four 300-word prompts one after the other, 2 tokens each",
        DEMO,
        1024,
        partial(_burst, _prompts, size=1),
    ),
    Scenario(
        "again",
        "8 questions that were answered in the conversation before, at once, 128 tokens each",
        DEMO,
        1024,
        partial(_burst, partial(_questions, repeated=True)),
    ),
    Scenario(
        "new",
        "8 questions asked for the first time, at once, 128 tokens each",
        DEMO,
        1024,
        partial(_burst, partial(_questions, repeated=False)),
    ),
)
OF_SETTINGS = {scenario.name: scenario for scenario in _OF_SETTINGS}
"""Shows what `--deterministic` and `--speculate` cost and gain."""


def _crowd(num: int) -> Scenario:
    def requests(seed: int) -> list[Request]:
        return prompts.uniform(seed, 2 * num, num_words=64, num_tokens=64)

    work = f"{num} streams, 64-word prompts, 64 tokens each, {2 * num} requests"
    measure = partial(_burst, requests, size=num)
    return Scenario(f"streams-{num}", work, Q06, 512, measure, slots=num)


CROWDS = {crowd.name: crowd for crowd in map(_crowd, (32, 128))}
"""For GPUs: on a CPU they take hours, so they run only if they are named."""
