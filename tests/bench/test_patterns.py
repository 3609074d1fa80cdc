"""Patterns of requests, against a server that has a prefix of each prompt it was asked before."""

from collections.abc import Sequence
from itertools import takewhile
from operator import eq
from typing import Any

import pytest

from bench.patterns import ANSWER, PATTERNS, Answer, Message, words


def num_alike(one: list[str], other: list[str]) -> int:
    return sum(1 for _ in takewhile(bool, map(eq, one, other)))


class Server:
    """Its tokens are words, and it says the same number of them to every prompt."""

    def __init__(self) -> None:
        self.known: list[list[str]] = []
        self.num_asked = 0
        self.tools: list[Sequence[dict[str, Any]]] = []

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        num_tokens: int = ANSWER,
        tools: Sequence[dict[str, Any]] = (),
    ) -> Answer:
        prompt = [word for each in messages for word in (each["role"], *each["content"].split())]
        shared = max((num_alike(one, prompt) for one in self.known), default=0)
        text = words(self.num_asked, num_tokens)
        self.num_asked += 1
        self.tools.append(tools)
        self.known.append([*prompt, "assistant", *text.split()])
        return Answer(text, len(prompt), min(shared, len(prompt) - 1))


@pytest.mark.parametrize(
    ("name", "num_answers", "most_computed"),
    [
        ("a conversation of six turns", 6, 1100),  # a system message, and six of a user
        ("the same prompt again", 1, 1),
        ("another last message", 1, 101),
        ("two turns taken back", 1, 101),
        ("another session, same system message and tools", 1, 101),
        ("six conversations over four slots", 24, 6 * 850),
        ("eight requests that begin alike, four at once", 8, 1402 + 8 * 20),
    ],
)
async def test_what_a_pattern_has_in_common_with_what_came_before(
    name: str, num_answers: int, most_computed: int
) -> None:
    server = Server()
    answers = await PATTERNS[name](server.ask, 1)
    assert len(answers) == num_answers
    computed = sum(one.num_computed for one in answers)
    assert 0.9 * most_computed <= computed <= most_computed


async def test_rounds_have_nothing_in_common() -> None:
    for pattern in PATTERNS.values():
        server = Server()
        await pattern(server.ask, 1)
        before, server.known = server.known, []
        await pattern(server.ask, 2)
        assert all(num_alike(one, other) < 4 for one in before for other in server.known)


async def test_only_a_session_has_tools() -> None:
    for name, pattern in PATTERNS.items():
        server = Server()
        await pattern(server.ask, 1)
        assert all(map(bool, server.tools)) == name.startswith("another session")
