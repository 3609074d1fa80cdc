"""Agents that send what no honest one does, beside a good agent with a well-behaved stream.

What a rogue says ends its own link, with a reason that operators see; its requests move, and what
it said is not learnt.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from integration_tests.corpus import generate, plain_cases
from integration_tests.daemons import DEADLINE, MODEL, Fleet, until
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed
from integration_tests.rogue_agent import (
    RogueAgent,
    codes_of,
    ended,
    model_info,
    piece,
    refused,
    status,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

WITHIN = DEADLINE

OWN = "of-the-rogue"
"""A model that only a rogue serves."""

Answering = asyncio.Task[tuple[int, list[dict[str, Any]]]]

_numbers = count(1)


@asynccontextmanager
async def rogue(fleet: Fleet, **fields: Any) -> AsyncIterator[RogueAgent]:
    """A rogue that no other test has spoiled the name of."""
    async with RogueAgent.dial(fleet, f"rogue-{next(_numbers)}", **fields) as found:
        assert found.answer["type"] == "welcome", found.answer
        yield found


@asynccontextmanager
async def chosen(fleet: Fleet) -> AsyncIterator[tuple[RogueAgent, dict[str, Any], Answering]]:
    """A rogue, and a request that it was given since the good agent took none just then."""
    [good] = [each["id"] for each in await fleet.view("agents")]
    async with rogue(fleet) as found, asyncio.TaskGroup() as group:
        await fleet.steer(good, "drain")
        answer = group.create_task(ask(fleet, MODEL.stem))
        start = await found.next("start")
        await fleet.steer(good, "resume")
        yield found, start, answer


async def ask(fleet: Fleet, model: str) -> tuple[int, list[dict[str, Any]]]:
    """The status and the events of a short request."""
    body = {"model": model, "prompt": "a", "max_tokens": 3, "temperature": 0, "ignore_eos": True}
    return await post(fleet, "/api/v1/generate", body)


async def post(
    fleet: Fleet, path: str, body: Mapping[str, Any]
) -> tuple[int, list[dict[str, Any]]]:
    url = f"{fleet.inference}{path}"
    async with asyncio.timeout(WITHIN), fleet.http.post(url, json=body) as response:
        return response.status, [json.loads(line) async for line in response.content]


def said(events: list[dict[str, Any]]) -> str:
    """The text of an answer."""
    return "".join(each["text"] for each in events if each["event"] == "token")


async def is_served(fleet: Fleet) -> None:
    """The good agent answers as ever, and operators see numbers."""
    case = plain_cases()[0]
    async with asyncio.timeout(WITHIN):
        body = {"model": MODEL.stem} | case.body
        assert (await generate(fleet.http, fleet.inference, body)).text == case.answer
        for path in ("/metrics", "/api/v1/history", "/api/v1/agents", "/api/v1/requests"):
            async with fleet.http.get(f"{fleet.management}{path}") as response:
                assert response.status == 200, (path, await response.text())
                assert not re.search(r"\bnan\b", await response.text(), re.IGNORECASE), path


async def until_written(fleet: Fleet) -> None:
    """Waits until the end of a request of now is among those that the store has."""
    _, events = await ask(fleet, MODEL.stem)
    id = events[-1]["id"]
    url = f"{fleet.management}/api/v1/requests?state=ended&limit=100"

    async def is_there() -> bool:
        async with fleet.http.get(url) as response:
            return id in {each["id"] for each in (await response.json())["requests"]}

    await until(is_there, deadline=WITHIN)


# ---- numbers that cannot be


@pytest.mark.parametrize("rate", ["5e-324", "1e308", "0", "-1", "1e999", "NaN"])
async def test_rates_that_no_engine_has(long_fleet: Fleet, rate: str) -> None:
    async def attack(_: Bystander) -> None:
        async with chosen(long_fleet) as (found, start, answer):
            rates = {"decode_tokens_per_second": "?", "prefill_tokens_per_second": "?"}
            output = {"type": "output", "items": [piece(start), ended(start, rates=rates)]}
            await found.send_bytes(json.dumps(output).replace('"?"', rate).encode())
            reason = await found.until_closed()
            assert reason.startswith(
                "bad_messages: the message is not a valid message of an agent"
            ), reason
            status, events = await answer
            assert (status, events[-1]["event"]) == (200, "done"), events
            assert events[-1]["timings"]["moves"] == 1
            assert said(events) == said((await ask(long_fleet, MODEL.stem))[1])
        await is_served(long_fleet)

    await unnoticed(long_fleet, attack)


@pytest.mark.parametrize("number", [2**63, 10**308, 10**400])
async def test_counts_that_no_request_has(long_fleet: Fleet, number: int) -> None:
    """None of these reaches a store or a metric; what others did is written as ever."""

    async def attack(_: Bystander) -> None:
        for usage in ({"prompt_tokens": number}, {"completion_tokens": number}):
            async with chosen(long_fleet) as (found, start, answer):
                await found.items(piece(start), ended(start, usage=usage))
                assert (await found.until_closed()).startswith("bad_messages: ")
                assert (await answer)[1][-1]["event"] == "done"
        async with chosen(long_fleet) as (found, start, answer):
            tokens = {"prompt_tokens": number, "cached_tokens": number}
            await found.items({"type": "prompt_read", "id": start["id"], **tokens})
            assert (await found.until_closed()).startswith("bad_messages: ")
            assert (await answer)[1][-1]["event"] == "done"
        for message in (
            {"type": "statistics", "completion_tokens": number},
            {"type": "statistics", "stalls": {"counts": [number]}},
            status(model=model_info(parameters=number)),
            status(work={"revision": number}),
        ):
            async with rogue(long_fleet) as found:
                await found.send(message)
                assert (await found.until_closed()).startswith("bad_messages: ")
        await until_written(long_fleet)
        await is_served(long_fleet)

    await unnoticed(long_fleet, attack)


async def test_more_tokens_than_were_asked_for(long_fleet: Fleet) -> None:
    async def attack(_: Bystander) -> None:
        async with chosen(long_fleet) as (found, start, answer):
            await found.items(piece(start, tokens=[7] * 1000))
            assert "1000 tokens for a request that can have" in await found.until_closed()
            assert (await answer)[1][-1]["usage"]["completion_tokens"] == 3
        async with chosen(long_fleet) as (found, start, answer):
            usage = {"prompt_tokens": 3, "completion_tokens": 2**31 - 1}
            await found.items(piece(start), ended(start, usage=usage))
            assert "tokens for a request that can have" in await found.until_closed()
            assert (await answer)[1][-1]["usage"]["completion_tokens"] == 3

    await unnoticed(long_fleet, attack)


# ---- words that cannot be


async def test_a_prompts_part_after_content(long_fleet: Fleet) -> None:
    messages = [{"role": "user", "content": "a"}]
    chat = {"model": OWN, "max_tokens": 16, "messages": messages}
    bodies: dict[str, dict[str, Any]] = {
        "/v1/messages": chat,
        "/v1/responses": {"model": OWN, "input": "a", "max_output_tokens": 16, "store": False},
        "/v1/chat/completions": chat,
    }
    num_faults = _faults(long_fleet)

    async def attack(_: Bystander) -> None:
        for path, body in bodies.items():
            for kind in ("prompt", "tool_call"):
                async with rogue(long_fleet, model=model_info(OWN)) as found:
                    asking = asyncio.create_task(_events(long_fleet, path, body | {"stream": True}))
                    start = await found.next("start")
                    await found.items(piece(start), piece(start, "b", kind=kind))
                    assert "a part of " in await found.until_closed()
                async with rogue(long_fleet, model=model_info(OWN)) as found:
                    start = await found.next("start")  # it moved, since nothing of it was delivered
                    read = {"type": "prompt_read", "id": start["id"]}
                    counts = {"prompt_tokens": 3, "cached_tokens": 0}
                    await found.items(piece(start), {**read, **counts}, ended(start))
                    assert "error" not in await asking

    await unnoticed(long_fleet, attack)
    assert _faults(long_fleet) == num_faults


async def _events(fleet: Fleet, path: str, body: Mapping[str, Any]) -> str:
    """The types of what a stream of an API brings, and its errors."""
    url = f"{fleet.inference}{path}"
    async with asyncio.timeout(WITHIN), fleet.http.post(url, json=body) as response:
        lines = [line.decode() async for line in response.content]
    assert response.status == 200, lines
    told = ("event: ", 'data: {"error"')
    return "".join(line for line in lines if line.startswith(told))


def _faults(fleet: Fleet) -> int:
    """The tracebacks in the balancer's log."""
    return sum("Traceback" in line or '"level":"error"' in line for line in fleet.balancer.stderr)


@pytest.mark.parametrize("code", ["unauthorized", "forbidden", "rate_limited", "queue_full", "x"])
async def test_errors_that_no_agent_can_know_of(long_fleet: Fleet, code: str) -> None:
    async def attack(_: Bystander) -> None:
        async with (
            rogue(long_fleet, model=model_info(OWN)) as found,
            asyncio.TaskGroup() as group,
        ):
            asking = group.create_task(ask(long_fleet, OWN))
            await found.items(refused(await found.next("start"), code))
            status, [error] = await asking
            assert (status, error["error"]["code"]) == (500, "engine_failed")

    await unnoticed(long_fleet, attack)


async def test_a_pause_before_the_big_bang(long_fleet: Fleet) -> None:
    async def attack(_: Bystander) -> None:
        async with chosen(long_fleet) as (found, start, answer):
            await found.items(refused(start, "engine_failed", retry_after=-1e300))
            assert (await found.until_closed()).startswith("bad_messages: ")
            assert (await answer)[1][-1]["event"] == "done"

    await unnoticed(long_fleet, attack)


# ---- too much of it


async def test_a_flood_of_statuses(long_fleet: Fleet) -> None:
    """As many as there were in 6 s of the attack; the last one counts."""
    flood = [json.dumps(status(slots=n + 1, model=model_info(OWN))).encode() for n in range(7)]

    async def attack(_: Bystander) -> None:
        async with rogue(long_fleet, model=model_info(OWN)) as found:
            for number in range(63_000):
                await found.send_bytes(flood[number % 7])
                if number % 50 == 0:
                    await asyncio.sleep(0)  # this process reads what the bystander gets, too
            await found.send(status(slots=9, model=model_info(OWN)))

            async def has_come() -> bool:
                agents = await long_fleet.view("agents")
                return any(each["slots"]["total"] == 9 for each in agents)

            await until(has_come, deadline=WITHIN)

    await unnoticed(long_fleet, attack)
    await is_served(long_fleet)


# ---- what becomes of a rogue


async def test_it_stays_away_for_a_while_and_operators_see_why(long_fleet: Fleet) -> None:
    async def attack(_: Bystander) -> None:
        name = f"rogue-{next(_numbers)}"
        reasons = []
        for _ in range(2):
            await _until_let_in(long_fleet, name)
            async with RogueAgent.dial(long_fleet, name) as again:
                reasons.append(again.answer.get("reason"))
        assert all(reason and reason.startswith("bad_messages: ") for reason in reasons)
        line = await long_fleet.balancer.until_line(
            long_fleet.balancer.stderr, "it sent a message that cannot be true"
        )
        assert "Traceback" not in line

    await unnoticed(long_fleet, attack)


async def _until_let_in(fleet: Fleet, name: str) -> None:
    """Dials until it is let in; the issue of what it did before is there; then does it again."""
    is_first = True
    async with asyncio.timeout(WITHIN):
        while True:
            async with RogueAgent.dial(fleet, name) as found:
                if found.answer["type"] == "welcome":
                    [view] = [e for e in await fleet.view("agents") if e["name"] == name]
                    assert is_first or codes_of(view["issues"]) == {"bad_messages"}
                    await found.send({"type": "statistics", "busy_seconds": -1})
                    assert "bad_messages" in await found.until_closed()
                    return
            is_first = False
            await asyncio.sleep(0.1)
