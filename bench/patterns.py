"""Conversations of which most was computed before, as clients send them: patterns of requests.

A pattern asks one server, and gives the answers to the requests that count. Nothing of one pattern
is in another, nor in one with another seed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from bench.conversations import TOOLS

Message = dict[str, str]

WORDS = (
    *("slot", "queue", "agent", "model", "batch", "token"),
    *("cache", "prompt", "answer", "balancer", "stream", "layer"),
)

SYSTEM, COMMON, USER, OWN = 400, 1400, 100, 20
"""Words of a system message, of what many requests begin with, of a user's message, of the end."""

ANSWER = 32
"""Tokens of an answer."""


def words(seed: object, count: int) -> str:
    """So many words, always the same."""
    return " ".join(Random(str(seed)).choices(WORDS, k=count))


def said(role: str, content: str) -> Message:
    """A message."""
    return {"role": role, "content": content}


@dataclass(frozen=True, slots=True)
class Answer:
    """Tokens of the prompt, how many of them were cached, seconds to the first of the answer."""

    text: str
    num_prompt: int
    num_cached: int
    first_token: float = 0.0

    @property
    def num_computed(self) -> int:
        """Tokens of the prompt that had to be computed."""
        return self.num_prompt - self.num_cached


class Ask(Protocol):
    """Sends messages to a server, and gives its answer of `num_tokens` tokens."""

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        num_tokens: int = ANSWER,
        tools: Sequence[dict[str, Any]] = (),
    ) -> Answer: ...


Pattern = Callable[[Ask, int], Awaitable[list[Answer]]]


async def turns(ask: Ask, seed: object, count: int) -> tuple[list[Message], list[Answer]]:
    """A conversation of so many turns: its messages, with the last answer, and all answers."""
    history = [said("system", words(f"{seed} system", SYSTEM))]
    answers = []
    for turn in range(count):
        history.append(said("user", words(f"{seed} user {turn}", USER)))
        answers.append(await ask(history))
        history.append(said("assistant", answers[-1].text))
    return history, answers


async def conversation(ask: Ask, seed: int) -> list[Answer]:
    """A conversation of six turns."""
    return (await turns(ask, f"conversation {seed}", 6))[1]


async def again(ask: Ask, seed: int) -> list[Answer]:
    """The same prompt once more."""
    history, _ = await turns(ask, f"again {seed}", 2)
    return [await ask(history[:-1])]


async def another_message(ask: Ask, seed: int) -> list[Answer]:
    """Another last message."""
    history, _ = await turns(ask, f"another {seed}", 2)
    return [await ask([*history[:-2], said("user", words(f"other {seed}", USER))])]


async def cut_back(ask: Ask, seed: int) -> list[Answer]:
    """Two turns are taken back, and another message is sent."""
    history, _ = await turns(ask, f"back {seed}", 4)
    return [await ask([*history[:-4], said("user", words(f"instead {seed}", USER))])]


async def new_session(ask: Ask, seed: int) -> list[Answer]:
    """Another session with the same system message and tools."""
    system = said("system", words(f"session {seed}", 3 * SYSTEM))
    first, second = (said("user", words(f"{name} {seed}", USER)) for name in ("one", "two"))
    await ask([system, first], tools=TOOLS)
    return [await ask([system, second], tools=TOOLS)]


async def six_conversations(ask: Ask, seed: int) -> list[Answer]:
    """Six conversations of four turns each, in turn."""
    histories = [[said("system", words(f"{n} of six {seed}", SYSTEM))] for n in range(6)]
    answers = []
    for turn in range(4):
        for number, history in enumerate(histories):
            history.append(said("user", words(f"{number} {turn} of six {seed}", USER)))
            answers.append(await ask(history))
            history.append(said("assistant", answers[-1].text))
    return answers


async def first_wave(ask: Ask, seed: int) -> list[Answer]:
    """Eight requests that begin alike, four at once."""
    common = words(f"wave {seed}", COMMON)
    limit = asyncio.Semaphore(4)

    async def one(number: int) -> Answer:
        async with limit:
            return await ask([said("user", f"{common} {words(f'{number} {seed}', OWN)}")])

    return list(await asyncio.gather(*map(one, range(8))))


PATTERNS: dict[str, Pattern] = {
    "a conversation of six turns": conversation,
    "the same prompt again": again,
    "another last message": another_message,
    "two turns taken back": cut_back,
    "another session, same system message and tools": new_session,
    "six conversations over four slots": six_conversations,
    "eight requests that begin alike, four at once": first_wave,
}
