import json
from typing import Any

import aiohttp
import pytest

from arriero.cli.load import Timed, ask, summed_up
from tests.client.fakes import FakeServer, says, serving, writes


def chunk(**delta: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"


USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 5}}\n\n'
END = b"data: [DONE]\n\n"


async def asked(server: FakeServer, *, stream: bool = True) -> Timed:
    async with aiohttp.ClientSession() as session:
        return await ask(session, server.url + "/v1/chat/completions", {"stream": stream}, {})


async def test_an_answer_is_timed() -> None:
    async with serving() as server:
        server.will(
            writes(chunk(role="assistant"), chunk(content="a"), chunk(content="b"), USAGE, END)
        )
        timed = await asked(server)
    assert (timed.error, timed.tokens) == (None, 5)
    assert timed.first is not None
    assert 0 <= timed.first <= timed.first + timed.rest <= timed.seconds


async def test_without_usage_pieces_are_counted() -> None:
    async with serving() as server:
        server.will(writes(chunk(content="a"), chunk(reasoning_content="b"), END))
        assert (await asked(server)).tokens == 2


async def test_an_answer_in_one_piece_has_no_first_token() -> None:
    answer = {"choices": [{"message": {"content": "a b"}}], "usage": {"completion_tokens": 5}}
    async with serving() as server:
        server.will(says(answer), says({"choices": [{"message": {}}]}), says({}))
        timed, empty, odd = [await asked(server, stream=False) for _ in range(3)]
    assert (timed.error, timed.tokens, timed.first, timed.between) == (None, 5, None, None)
    assert timed.seconds > 0
    assert (empty.error, odd.error) == ("the answer has no text", "KeyError: 'choices'")


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (says({"error": {"message": "full"}}, status=503), "503: full"),
        (writes(chunk(content="a"), b'data: {"error": {"message": "lost"}}\n\n'), "lost"),
        (writes(chunk(content="a"), breaks=True), "ClientPayloadError"),
        (writes(b"data: {nonsense\n\n"), "JSONDecodeError"),
        (writes(END), "no text"),
    ],
)
async def test_failures_are_failures(handler: Any, error: str) -> None:
    async with serving() as server:
        server.will(handler)
        assert error in ((await asked(server)).error or "")


def test_figures_of_a_level() -> None:
    answers = [
        Timed(1.0, first=0.2, rest=0.8, tokens=9),
        Timed(2.0, first=0.4, rest=1.6, tokens=9),
        Timed(0.1, error="503: full"),
    ]
    level = summed_up(2, answers, 3.0)
    assert (level.requests, level.failed, level.tokens_per_second) == (3, 1, 6.0)
    assert level.first_p50 == pytest.approx(0.3)
    assert level.between_p50 == pytest.approx(0.15)
    assert level.requests_per_second == pytest.approx(2 / 3)
    assert level.total_p50 == pytest.approx(1.5)
    assert level.total_p95 == pytest.approx(1.95)
    assert level.total_p99 == pytest.approx(1.99)
    assert level.problem == "503: full"
    nothing = summed_up(1, [Timed(0.1, error="x")], 1.0)
    assert (nothing.first_p50, nothing.between_p95, nothing.tokens_per_second) == (None, None, 0)
