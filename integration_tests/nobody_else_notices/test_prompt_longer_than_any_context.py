"""A prompt that fits into no context is refused at once, though no slot is free to look at it.

The bystander keeps the only one, and requests wait for it for longer than any test.
"""

import asyncio
from typing import Any

import pytest

from integration_tests.corpus import LONG_CONTEXT, generate
from integration_tests.daemons import Fleet
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed


@pytest.fixture
async def full(fleet: Fleet) -> Fleet:
    """A fleet whose only slot the bystander takes."""
    await fleet.start_balancer(buffered_request_timeout="1h")
    await fleet.start_agent(slots=1, context_size=LONG_CONTEXT)
    return fleet


async def refused(fleet: Fleet, body: dict[str, Any]) -> dict[str, Any]:
    answer = await generate(fleet.http, fleet.inference, body)
    assert answer.status == 400, answer
    error: dict[str, Any] = answer.end["error"]
    assert error["code"] == "prompt_too_long"
    return error


async def test_it_is_refused_before_it_waits(full: Fleet) -> None:
    async def attack(seen: Bystander) -> None:
        [agent] = await full.view("agents")
        longest = agent["model"]["longest_token"]
        assert longest > 0

        by_ids = await refused(full, {"prompt": [1] * 200_000})
        assert "200000 tokens > " in by_ids["message"]
        by_text = await refused(full, {"prompt": "x" * longest * LONG_CONTEXT})
        assert f"at least {LONG_CONTEXT} tokens > {LONG_CONTEXT - 1} maximum" in by_text["message"]

        fits = asyncio.create_task(generate(full.http, full.inference, {"prompt": "Once"}))
        await full.until_num_requests(1, "queued")
        fits.cancel()
        await full.until_num_requests(0, "queued")

    await unnoticed(full, attack)
