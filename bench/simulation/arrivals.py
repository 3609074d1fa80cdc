"""When requests come and how long they are: Poisson, bursts, and the shapes of public traces.

The public ones are written as generators, from what their authors published of them:

- *azure-chat* and *azure-code*: Azure's traces of 2023 (Patel et al., Splitwise, ISCA 2024). Median
  prompts are 1,020 and 1,500 tokens, median answers 129 and 13. Arrivals come in bursts: the
  intervals are gamma distributed with a coefficient of variation of 2.
- *mooncake*: Mooncake's trace (Qin et al., FAST 2025). Prompts have 7,590 tokens on average and
  answers 182; half of the prompts' tokens were seen before: sessions go on and share documents.

Lengths are log-normal around their medians. A third of all requests come from the first caller, the
others from 99 alike. Everything is drawn from the source of chance given, in
the order of time; `rate` is in requests a second.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request: `caller`'s next turn of `session`, with `num_prompt` tokens and an answer.

    Of the prompt, the first `num_shared` are the same in all requests of one `document`, and what
    the session's turns before had is the beginning of the next.
    """

    at: float
    caller: int
    session: int
    num_prompt: int
    num_answer: int
    document: int = 0
    num_shared: int = 0


Gap = Callable[[Random], float]
"""Seconds to the next arrival, one on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Medians in tokens; `spread` is the standard deviation of the logarithms."""

    prompt: float
    answer: float
    spread: float = 0.8
    most: int = 32_768

    def draw(self, random: Random) -> tuple[int, int]:
        """The lengths of a prompt and its answer; at least one token each."""
        return self._one(random, self.prompt), self._one(random, self.answer)

    def _one(self, random: Random, center: float) -> int:
        drawn = random.lognormvariate(math.log(center), self.spread)
        return min(max(1, round(drawn)), self.most)


NUM_CALLERS = 100
GREEDY = 1 / 3
"""The first caller's share of all requests."""

SHORT = Lengths(prompt=200, answer=60)
AZURE_CHAT = Lengths(prompt=1020, answer=129, spread=0.9)
AZURE_CODE = Lengths(prompt=1500, answer=13, spread=1.0)
MOONCAKE_TURN = Lengths(prompt=1500, answer=150, spread=0.6)
MOONCAKE_DOCUMENT = 3000
MOONCAKE_TURNS = 3.0
MOONCAKE_PAUSE = 30.0


def steady(random: Random) -> float:
    """A Poisson process."""
    return random.expovariate(1.0)


def bursty(random: Random, variation: float = 2.0) -> float:
    """Gamma distributed, with this coefficient of variation."""
    shape = 1 / variation**2
    return random.gammavariate(shape, 1 / shape)


def caller_of(random: Random) -> int:
    """The caller that sends the next request, or begins the next session."""
    return 0 if random.random() < GREEDY else random.randrange(1, NUM_CALLERS)


class Waves:
    """Ten seconds of three times the rate, then twenty of none. One for each trace."""

    def __init__(self, rate: float, *, on: float = 10.0, off: float = 20.0) -> None:
        self._rate, self._on, self._off = rate, on, off
        self._passed = 0.0

    def __call__(self, random: Random) -> float:
        """In units of the mean interval, as the others."""
        step = random.expovariate(self._rate * (self._on + self._off) / self._on)
        before = self._passed // self._on
        self._passed += step
        waves = self._passed // self._on - before
        return (step + waves * self._off) * self._rate


def one_by_one(
    random: Random, rate: float, *, lengths: Lengths, gap: Gap = steady
) -> Iterator[Arrival]:
    """Requests that have nothing in common, without an end."""
    at, number = 0.0, 0
    while True:
        at += gap(random) / rate
        number += 1
        prompt, answer = lengths.draw(random)
        yield Arrival(at, caller_of(random), number, prompt, answer)


def sessions(random: Random, rate: float) -> Iterator[Arrival]:
    """Mooncake's: sessions of some turns, each about one of 50 seconds' documents."""
    turns: list[tuple[float, int, Arrival, int]] = []
    num_documents = max(1, round(rate / MOONCAKE_TURNS * 50))
    begins, number = 0.0, 0
    while True:
        begins += random.expovariate(rate / MOONCAKE_TURNS)
        while turns and turns[0][0] <= begins:
            yield _next_turn(random, turns)
        number += 1
        prompt, answer = MOONCAKE_TURN.draw(random)
        document = random.randrange(num_documents) + 1
        first = Arrival(
            begins,
            caller_of(random),
            number,
            MOONCAKE_DOCUMENT + prompt,
            answer,
            document,
            MOONCAKE_DOCUMENT,
        )
        # A geometric number of turns, with the mean MOONCAKE_TURNS.
        num_turns = 1 + int(math.log(1 - random.random()) / math.log(1 - 1 / MOONCAKE_TURNS))
        heappush(turns, (begins, number, first, num_turns))


def _next_turn(random: Random, turns: list[tuple[float, int, Arrival, int]]) -> Arrival:
    at, number, turn, left = heappop(turns)
    if left > 1:
        added, answer = MOONCAKE_TURN.draw(random)
        later = at + random.expovariate(1 / MOONCAKE_PAUSE)
        num_prompt = min(turn.num_prompt + turn.num_answer + added, MOONCAKE_TURN.most)
        shared = (turn.document, turn.num_shared)
        following = Arrival(later, turn.caller, number, num_prompt, answer, *shared)
        heappush(turns, (later, number, following, left - 1))
    return turn


TRACES: dict[str, Callable[[Random, float], Iterator[Arrival]]] = {
    "poisson": lambda random, rate: one_by_one(random, rate, lengths=SHORT),
    "bursts": lambda random, rate: one_by_one(random, rate, lengths=SHORT, gap=Waves(rate)),
    "azure-chat": lambda random, rate: one_by_one(random, rate, lengths=AZURE_CHAT, gap=bursty),
    "azure-code": lambda random, rate: one_by_one(random, rate, lengths=AZURE_CODE, gap=bursty),
    "mooncake": sessions,
}
