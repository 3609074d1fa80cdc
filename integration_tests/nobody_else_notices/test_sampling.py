"""Sampling parameters that once broke, or blocked, the engine's thread."""

import asyncio
from typing import Any

import pytest

from arriero.agent.engine.pace import STEPS
from integration_tests.corpus import LONG_CONTEXT, generate
from integration_tests.daemons import Fleet, until
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed

LONGEST = 2**31 - 1

HOSTILE: dict[str, dict[str, Any]] = {
    "a tiny temperature and mirostat": {"prompt": "hi", "temperature": 1e-38, "mirostat": 2},
    "a tiny temperature and mirostat 1": {"prompt": "hi", "temperature": 1e-38, "mirostat": 1},
    "a tiny repeat penalty": {"prompt": "hi hi", "repeat_penalty": 1e-300, "top_n_sigma": 100},
    "DRY of what is repeated": {
        "prompt": [40] * 200,
        "dry_multiplier": 100,
        "dry_base": 100,
        "dry_allowed_length": 0,
        "dry_penalty_last_n": LONGEST,
    },
}

CONTEXT = 65_536
SLOWLY = "200"
"""Steps a second, so that the stream leaves the cells of a whole context to the others."""

ONE_TOKEN_REPEATED = {
    "prompt": [40] * (CONTEXT - 1),
    "dry_multiplier": 1,
    "dry_penalty_last_n": LONGEST,
    "dry_sequence_breakers": [],
}
"""Looking up its repeats one token after the other takes over ten seconds."""


@pytest.fixture
async def serving(fleet: Fleet) -> Fleet:
    await fleet.start_balancer()
    await fleet.start_agent(
        context_size=CONTEXT, kv_cells=CONTEXT + LONG_CONTEXT, slots=2, env={STEPS: SLOWLY}
    )
    return fleet


async def test_hostile_sampling_ends_nobody_elses_stream(serving: Fleet) -> None:
    async def attack(seen: Bystander) -> None:
        for name, body in HOSTILE.items():
            answer = await serving.http.post(
                f"{serving.inference}/api/v1/generate",
                json={"max_tokens": 20, "ignore_eos": True, "stream": False, **body},
            )
            assert answer.status == 200, f"{name}: {await answer.text()}"
            ended = await answer.json()
            assert ended["usage"]["completion_tokens"] == 20, name
        hostile = asyncio.create_task(generate(serving.http, serving.inference, ONE_TOKEN_REPEATED))

        async def is_read() -> bool:
            """Whether two sequences run, of which agents tell once a second, or it is over."""
            (agent,) = await serving.view("agents")
            return bool(agent["statistics"]["sequences"]["running"] == 2) or hostile.done()

        await until(is_read)
        hostile.cancel()
        await serving.until_num_requests(1, "streaming")

    await unnoticed(serving, attack)
