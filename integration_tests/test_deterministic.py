"""`--deterministic`: equal answers whatever runs beside them, and though an agent is killed."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from integration_tests.corpus import ENDLESS, Answer, generate, plain_cases
from integration_tests.daemons import Fleet, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOTS = 4
LENGTHS = (3, 20, 45, 70, 110)
SYSTEM = {"role": "system", "content": "You answer questions about Arriero. " * 8}


def bodies() -> list[dict[str, Any]]:
    """Of short and long prompts and answers, greedy and sampled, some with a common beginning."""
    drawn = random.Random(3)
    asked = []
    for number, case in enumerate(drawn.sample(plain_cases(), 13)):
        messages = [SYSTEM, *case.body["messages"]] if number % 3 else case.body["messages"]
        chance = {"temperature": 0.9, "seed": number} if number % 2 else {"temperature": 0}
        asked.append(
            {"messages": messages, "max_tokens": LENGTHS[number % 5], "ignore_eos": True}
            | {"logprobs": True, "top_logprobs": 4}
            | chance
        )
    return asked


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet() -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(heartbeat_interval="100ms", heartbeat_timeout="2s")
        yield fleet


def said(answer: Answer) -> tuple[str, list[Any], str]:
    """The text, all log-probabilities as they came, and why it ended."""
    assert answer.status == 200
    explained = [
        entry
        for event in answer.events
        if event["event"] == "token"
        for entry in event.get("logprobs") or ()
    ]
    assert explained
    return answer.text, explained, answer.events[-1]["finish_reason"]


async def ask(fleet: Fleet, body: dict[str, Any]) -> Answer:
    return await generate(fleet.http, fleet.inference, body)


async def test_answers_are_equal_beside_others_and_after_a_kill(fleet: Fleet) -> None:
    """On agents of other sizes, with other numbers of threads, in a random order."""
    asked = bodies()
    await fleet.start_agent(slots=1, deterministic=True)
    expected = [said(await ask(fleet, body)) for body in asked]
    await fleet.start_agent(slots=SLOTS, deterministic=True)
    await fleet.start_agent(slots=SLOTS, threads=2, deterministic=True)
    alone, first, _ = fleet.agents
    alone.signal(signal.SIGTERM)
    assert await alone.exit_code() == 0
    fleet.agents.remove(alone)
    order = random.Random(5).sample(range(len(asked)), len(asked))
    await fleet.hold()
    async with asyncio.TaskGroup() as clients:
        answers = {number: clients.create_task(ask(fleet, asked[number])) for number in order}
        await fleet.until_streaming(2 * SLOTS)
        fleet.agents.remove(first)
        first.signal_all(signal.SIGKILL)
        await fleet.let_go()
    given = [answers[number].result() for number in range(len(asked))]
    assert sum(answer.events[-1]["timings"]["moves"] for answer in given) >= 1
    assert [said(answer) for answer in given] == expected


@pytest_asyncio.fixture(loop_scope="module")
async def mixed() -> AsyncIterator[Fleet]:
    """An agent that gives equal answers, and one that does not."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(buffered_request_timeout="1s")
        await fleet.start_agent(slots=1, name="exact", deterministic=True)
        yield fleet


async def test_an_agent_without_it_does_not_go_on(mixed: Fleet) -> None:
    (exact,) = mixed.agents
    await mixed.hold()
    answer = asyncio.create_task(ask(mixed, ENDLESS | {"max_tokens": 300}))
    await mixed.until_streaming(1)
    await mixed.start_agent(slots=1, name="plain")
    views: dict[str, Any] = {}

    async def are_there() -> bool:
        views.update({each["name"]: each["model"] for each in await mixed.view("agents")})
        return {"exact", "plain"} <= views.keys()

    await until(are_there)
    assert [views[name]["deterministic"] for name in ("exact", "plain")] == [True, False]
    assert views["exact"]["kv_layout"] == "streams"
    exact.signal_all(signal.SIGKILL)
    last = (await answer).events[-1]
    assert (last["event"], last["error"]["code"]) == ("error", "agent_lost")
