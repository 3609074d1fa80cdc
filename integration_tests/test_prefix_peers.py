"""A prefix that one agent computed begins an answer of another; without it, all is computed.

The first agent's only slot has an endless stream, so the next request with the same prompt goes to
the second agent. Nothing has ended until then, so no speed is known: a token counts as expensive.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from arriero.agent.engine.capacity import BLOCK
from bench.small_models import write
from integration_tests.corpus import generate
from integration_tests.daemons import Daemon, Fleet, until

STORY = "The driver counts the mules, the bells and the bags of salt before each bridge. "
NUM_TOKENS = 16
STEADY = {"ARRIERO_PACE_STEPS": "100"}
"""Steps a second at most: a stream fills no context within a test."""

SIZES: dict[str, object] = {"context_size": 16384, "peer_addr": "127.0.0.1:0"}

PATIENT: dict[str, object] = {"max_stall": "10s"}
"""A whole state is copied even where the machine was so busy that copies were slow."""


@dataclass
class Streamed:
    """What came of a stream that goes on."""

    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return sum(event["event"] == "token" for event in self.events)

    @property
    def text(self) -> str:
        return "".join(event["text"] for event in self.events if event["event"] == "token")


def prompt(num_sentences: int, of: str = "") -> dict[str, Any]:
    text = f"{of}{STORY * num_sentences}"
    return {"prompt": text, "temperature": 0, "ignore_eos": True}


@asynccontextmanager
async def endless(fleet: Fleet, body: dict[str, Any]) -> AsyncIterator[Streamed]:
    """A stream that has begun."""
    streamed = Streamed()

    async def follow() -> None:
        async with fleet.http.post(f"{fleet.inference}/api/v1/generate", json=body) as response:
            async for line in response.content:
                streamed.events.append(json.loads(line))

    task = asyncio.create_task(follow())
    try:
        await until_tokens(streamed, NUM_TOKENS)
        yield streamed
    finally:
        task.cancel()
        await asyncio.wait({task})


async def until_tokens(streamed: Streamed, num: int) -> None:
    async def reached() -> bool:
        return streamed.num_tokens >= num

    await until(reached)


def blocks(folder: Path) -> list[Path]:
    return list(folder.glob("*.block"))


async def until_fetches(fleet: Fleet, outcome: str) -> None:
    await fleet.until_metrics(
        **{f'arriero_agent_prefix_fetches_total{{agent="two",outcome="{outcome}"}}': 1.0}
    )


async def test_what_was_fetched_gives_the_answer_that_computing_gives(fleet: Fleet) -> None:
    """Also where the two have their cells in different layouts."""
    body = prompt(150)
    await fleet.start_balancer()
    await fleet.start_agent(name="one", slots=1, kv_layout="streams", env=STEADY, **SIZES)
    async with endless(fleet, body) as first:
        await fleet.start_agent(name="two", slots=1, **SIZES)
        answer = await generate(fleet.http, fleet.inference, body | {"max_tokens": NUM_TOKENS})
        assert answer.end["agent"] == "two"
        usage = answer.end["usage"]
        assert usage["prompt_tokens"] > 1000
        assert usage["cached_tokens"] == usage["prompt_tokens"] - 1
        assert answer.text == first.text[: len(answer.text)]
        before = first.num_tokens
        await until_tokens(first, before + 1)
        await until_fetches(fleet, "fetched")


@pytest.mark.parametrize("name", ["gemma3", "qwen35"])
async def test_checkpoints_are_fetched_where_memories_cannot_be_cut(
    fleet: Fleet, tmp_path: Path, name: str
) -> None:
    body, model = prompt(60), write(name, tmp_path / "model.gguf")
    await fleet.start_balancer()
    sizes = SIZES | PATIENT
    await fleet.start_agent(name="one", slots=1, model=model, env=STEADY, **sizes)
    async with endless(fleet, body) as first:
        await fleet.start_agent(name="two", slots=1, model=model, **sizes)
        answer = await generate(fleet.http, fleet.inference, body | {"max_tokens": NUM_TOKENS})
        assert answer.end["agent"] == "two"
        usage = answer.end["usage"]
        assert usage["cached_tokens"] == usage["prompt_tokens"] - 1
        assert answer.text == first.text[: len(answer.text)]
        await until_fetches(fleet, "fetched")


async def test_what_only_the_disk_of_an_agent_has_after_a_restart_is_fetched(
    fleet: Fleet, tmp_path: Path
) -> None:
    body = prompt(150) | {"max_tokens": NUM_TOKENS}
    one: dict[str, object] = {"name": "one", "slots": 1, "cache_dir": tmp_path, **SIZES}
    await fleet.start_balancer()
    first = await fleet.start_agent(env=STEADY, **one)
    computed = await generate(fleet.http, fleet.inference, body)
    usage = computed.end["usage"]
    num_blocks = (usage["prompt_tokens"] + NUM_TOKENS - 1) // BLOCK

    async def is_written() -> bool:
        return len(blocks(tmp_path)) == num_blocks

    await until(is_written)
    first.signal_all(signal.SIGKILL)
    await first.exit_code()
    await fleet.start_agent(env=STEADY, **one)
    async with endless(fleet, prompt(3, "Another one. ")):
        await fleet.start_agent(name="two", slots=1, **SIZES)
        answer = await generate(fleet.http, fleet.inference, body)
        assert (answer.end["agent"], answer.text) == ("two", computed.text)
        num_whole = (usage["prompt_tokens"] - 1) // BLOCK * BLOCK
        assert answer.end["usage"]["cached_tokens"] >= num_whole
        await until_fetches(fleet, "fetched")


async def test_a_peer_that_is_frozen_costs_a_moment_and_nobody_else_notices(
    fleet: Fleet,
) -> None:
    body = prompt(12)
    await fleet.start_balancer()
    frozen: Daemon = await fleet.start_agent(name="one", slots=1, env=STEADY, **SIZES)
    async with endless(fleet, body) as first:
        text = first.text
        await fleet.start_agent(name="two", slots=2, env=STEADY, **SIZES)
        async with endless(fleet, prompt(3, "Another one. ")) as bystander:
            frozen.signal_all(signal.SIGSTOP)
            try:
                before = bystander.num_tokens
                answer = await generate(
                    fleet.http, fleet.inference, body | {"max_tokens": NUM_TOKENS}
                )
                assert bystander.num_tokens > before
                await until_fetches(fleet, "failed")
            finally:
                frozen.signal_all(signal.SIGCONT)
    assert (answer.end["event"], answer.end["agent"]) == ("done", "two")
    assert answer.end["usage"]["cached_tokens"] == 0
    assert text.startswith(answer.text[:8])
