"""Batches by OpenAI's client, with real daemons that are killed at any moment."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from openai.types import Batch

from integration_tests.corpus import Case, plain_cases
from integration_tests.daemons import DEADLINE, Daemon, Fleet

CHAT = "/v1/chat/completions"
NUM_LINES = 100
TOKENS = 12
"""Of each answer."""
ENDED = ("completed", "failed", "expired", "cancelled")


def request_line(number: int, case: Case) -> dict[str, Any]:
    body = {"model": "arriero-demo", "messages": case.body["messages"], "max_tokens": TOKENS}
    return {
        "custom_id": f"r{number}",
        "method": "POST",
        "url": CHAT,
        "body": {**body, "temperature": 0},
    }


def cases() -> list[Case]:
    return [case for case in plain_cases() if "messages" in case.body]


@asynccontextmanager
async def client_of(fleet: Fleet) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(
        timeout=DEADLINE, base_url=f"{fleet.inference}/v1", api_key="none"
    ) as client:
        yield client


async def until(client: AsyncOpenAI, id: str, least: int) -> Batch:
    """The batch when so many of its lines have results, or when it has ended."""
    async with asyncio.timeout(DEADLINE):
        while True:
            batch = await client.batches.retrieve(id)
            counts = batch.request_counts
            if batch.status in ENDED or (counts and counts.completed + counts.failed >= least):
                return batch
            await asyncio.sleep(0.02)


async def until_held(agent: Daemon, client: AsyncOpenAI, id: str, least: int) -> Batch:
    """The same, and the agent's engine computes no more than that takes."""
    async with asyncio.timeout(DEADLINE):
        num_lines = 0
        while num_lines < least:
            await agent.pace.hand_out(TOKENS)
            counts = (await client.batches.retrieve(id)).request_counts
            num_lines = counts.completed + counts.failed if counts else 0
    await agent.pace.hold()
    return await client.batches.retrieve(id)


async def test_each_line_has_one_result_whatever_is_killed(fleet: Fleet, tmp_path: Path) -> None:
    """The balancer is killed twice and the agent once; a poison line ends alone."""
    known = cases()
    lines = [json.dumps(request_line(n, known[n % len(known)])) for n in range(NUM_LINES)]
    lines.insert(50, "poison")
    state = f"sqlite:///{tmp_path}/state.db"
    await fleet.start_balancer(state=state)
    agent = await fleet.start_agent(slots=8)
    await agent.pace.hold()
    async with client_of(fleet) as client:
        file = await client.files.create(
            file=("in.jsonl", "\n".join(lines).encode()), purpose="batch"
        )
        batch = await client.batches.create(
            input_file_id=file.id, endpoint=CHAT, completion_window="1h"
        )
    for least in (10, 40):
        async with client_of(fleet) as client:
            batch = await until_held(agent, client, batch.id, least)
        assert batch.status in ("validating", "in_progress")
        fleet.balancer.signal(signal.SIGKILL)
        await fleet.balancer.exit_code()
        await fleet.restart_balancer(state=state)
    async with client_of(fleet) as client:
        assert (await until_held(agent, client, batch.id, 70)).status == "in_progress"
        agent.signal_engine(signal.SIGKILL)
        await agent.pace.let_go()
        batch = await until(client, batch.id, NUM_LINES + 2)
        assert batch.status == "completed"
        assert batch.output_file_id and batch.error_file_id
        outputs = (await client.files.content(batch.output_file_id)).text.splitlines()
        [error] = (await client.files.content(batch.error_file_id)).text.splitlines()
    answers = [json.loads(line) for line in outputs]
    assert [each["custom_id"] for each in answers] == [f"r{n}" for n in range(NUM_LINES)]
    for number, answer in enumerate(answers):
        body = answer["response"]["body"]
        said = body["choices"][0]["message"]["content"]
        assert known[number % len(known)].answer.startswith(said)
    assert json.loads(error)["id"].endswith("_51")


async def test_a_batch_is_cancelled(fleet: Fleet) -> None:
    """And its files are its owner's to list and delete."""
    await fleet.start_balancer()
    agent = await fleet.start_agent(slots=2)
    await agent.pace.hold()
    known = cases()
    lines = [json.dumps(request_line(n, known[n % len(known)])) for n in range(NUM_LINES)]
    async with client_of(fleet) as client:
        file = await client.files.create(
            file=("in.jsonl", "\n".join(lines).encode()), purpose="batch"
        )
        batch = await client.batches.create(
            input_file_id=file.id, endpoint=CHAT, completion_window="24h"
        )
        await until_held(agent, client, batch.id, 5)
        assert (await client.batches.cancel(batch.id)).status == "cancelling"
        await agent.pace.let_go()
        batch = await until(client, batch.id, NUM_LINES)
        assert batch.status == "cancelled"
        assert batch.output_file_id
        assert [each.id async for each in client.batches.list()] == [batch.id]
        text = (await client.files.content(batch.output_file_id)).text
        assert batch.request_counts
        assert len(text.splitlines()) == batch.request_counts.completed
        assert (await client.files.delete(file.id)).deleted
        assert [each.id async for each in client.files.list()] == [batch.output_file_id]
    await fleet.until_idle()
