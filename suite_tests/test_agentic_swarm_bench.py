"""agentic-swarm-bench: recorded coding sessions, while a balancer and then an agent are killed."""

import asyncio
import json
import logging
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from statistics import median
from typing import Any

import pytest

from client_tests.recorder import Exchange, Recorder
from integration_tests.daemons import Fleet, until
from suite_tests.harness import DEMO, judge, run

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(7200)]

log = logging.getLogger(__name__)

SCENARIOS = {"cpp-builds-gemma-4-31b": 65, "cpp-builds-claude-opus-4.6": 351}
"""How many requests each has."""

NUM_SESSIONS = 3
"""Of each. They run at once, and each sends one request after the other."""

CONTEXT_SIZE = 20_480
"""In the demo model's tokens. The sessions' first prompts have 14,400 of them.

SmolLM2's own 8,192 would hold 10 of the 416 prompts, and it reads several times as slowly.
"""

BALANCER_DIES, AGENT_DIES = 8, 16
"""At which of the requests; all sessions of the first scenario still run then."""

LEAST_CACHED = 0.95
"""Of the tokens that could be cached (`num_computed`)."""

PATIENCE = 1800
"""Seconds for an answer. The first prompts take minutes on a busy core."""

CHAT = "/v1/chat/completions"

Messages = list[dict[str, Any]]


async def test_sessions_outlive_a_balancer_and_an_agent() -> None:
    async with AsyncExitStack() as stack:
        first = Fleet(stack)
        await first.open_client(deadline=PATIENCE)
        await first.start_balancer(request_timeout=f"{PATIENCE}s")
        second = first.guest(stack)
        await second.start_balancer(request_timeout=f"{PATIENCE}s")
        urls = [each.management.replace("http", "ws", 1) for each in (first, second)]
        settings = {"context_size": CONTEXT_SIZE, "slots": 4}
        agents = [await first.start_agent(balancer=urls, **settings) for _ in range(2)]
        front = Recorder(first.inference)
        await front.start()
        stack.push_async_callback(front.close)
        sent = {number: asyncio.Event() for number in (BALANCER_DIES, AGENT_DIES)}

        def count(_path: str, body: dict[str, Any]) -> dict[str, Any]:
            if event := sent.get(len(front.of(CHAT))):
                event.set()
            return body

        front.edit = count
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(replay(front.url))
            await sent[BALANCER_DIES].wait()
            first.balancer.signal(signal.SIGKILL)
            front.upstream = second.inference
            num_of_first = len(front.of(CHAT))
            await sent[AGENT_DIES].wait()
            busy = await a_busy_agent(second)
            agents[busy].signal_all(signal.SIGKILL)
        exchanges = front.of(CHAT)
        assert len(exchanges) == sum(SCENARIOS.values())
        # The suite sends nothing again, so what its balancer did not finish is lost.
        kept = [*exchanges[num_of_first:]]
        kept[:0] = [each for each in exchanges[:num_of_first] if finding(each) is None]
        assert len(exchanges) - len(kept) <= NUM_SESSIONS
        await check(second, kept)
        assert sum(each["moves"] for each in await ended(second))


async def replay(url: str) -> None:
    """Lets the suite send all that was recorded to `url`."""
    for scenario in SCENARIOS:
        code, output = await run(
            *("agentic-swarm-bench", "asb", "replay", "-e", url, "-m", DEMO, "-w", scenario),
            *("--timeout", str(PATIENCE), "--json"),
            *("--extra-body", json.dumps({"max_tokens": 8, "temperature": 0})),
        )
        assert code == 0, output


async def ended(fleet: Fleet) -> list[dict[str, Any]]:
    """Returns what the balancer tells of the requests that ended."""
    url = f"{fleet.management}/api/v1/requests?state=ended&limit=1000"
    async with fleet.http.get(url) as response:
        requests: list[dict[str, Any]] = (await response.json())["requests"]
        return requests


async def a_busy_agent(fleet: Fleet) -> int:
    """Waits until an agent runs a request; returns its number, by the agents' names."""
    busy: list[int] = []

    async def is_busy() -> bool:
        agents = sorted(await fleet.view("agents"), key=lambda agent: agent["name"])
        busy[:] = [number for number, each in enumerate(agents) if each["slots"]["busy"]]
        return bool(busy)

    await until(is_busy)
    return busy[0]


def is_whole(exchange: Exchange) -> bool:
    return exchange.answer.endswith(b"data: [DONE]\n\n")


def finding(exchange: Exchange) -> str | None:
    """Returns what is wrong with an answer. Prompts that are too long have to be refused."""
    if exchange.status == 400:
        is_right = exchange.answered["error"]["code"] == "context_length_exceeded"
    else:
        is_right = exchange.status == 200 and is_whole(exchange)
    return None if is_right else repr(exchange)


async def check(fleet: Fleet, exchanges: list[Exchange]) -> None:
    """Checks answers of prompts and refusals, and how much of the prompts was cached."""
    judge({f"request {number}": finding(each) for number, each in enumerate(exchanges)}, {})
    served, refused = ([each for each in exchanges if each.status == code] for code in (200, 400))
    asked = could_be_cached = cached = 0
    for each in served:
        [usage] = [event["usage"] for event in each.events if event.get("usage")]
        most = min(await num_computed(fleet, each, served), usage["prompt_tokens"] - 1)
        found = min(most, usage["prompt_tokens_details"]["cached_tokens"])
        log.info("prompt of %d tokens, at most %d cached: %d", usage["prompt_tokens"], most, found)
        asked += usage["prompt_tokens"]
        could_be_cached += most
        cached += found
    log.info("of %d tokens %d could be cached, and %d were", asked, could_be_cached, cached)
    taken = [[each.ended - each.began for each in some] for some in (served, refused)]
    log.info(
        "%d served, in %.2f s (median), %d refused, in %.2f s (median), %.2f s (most)",
        *(len(served), median(taken[0]), len(refused), median(taken[1]), max(taken[1])),
    )
    assert cached >= LEAST_CACHED * could_be_cached
    assert median(taken[1]) < median(taken[0])


async def num_computed(fleet: Fleet, asked: Exchange, served: list[Exchange]) -> int:
    """At most how many tokens of the prompt were computed before it came, by whichever agent.

    These are the tokens of the longest beginning that its messages share with a conversation that
    was answered before, its answer included. In two ways the number is rather too high. The fleet
    counts the beginning as a whole conversation, with the ten tokens that end a message and begin
    an answer. And what only the killed agent had counts, though others have to compute it again.
    """
    messages = asked.json["messages"]
    before = (said(each) for each in served if each.ended < asked.began)
    shared = max((beginning(messages, each) for each in before), key=size, default=[])
    if not shared:
        return 0
    url = f"{fleet.inference}/api/v1/count_tokens"
    async with fleet.http.post(url, json={"messages": shared}) as response:
        num_tokens: int = (await response.json())["num_tokens"]
        return num_tokens


def said(exchange: Exchange) -> Messages:
    """Returns the messages of a request, and its answer as the last one."""
    pieces = [choice["delta"] for event in exchange.events for choice in event["choices"]]
    text = "".join(each.get("content") or "" for each in pieces)
    messages: Messages = [*exchange.json["messages"], {"role": "assistant", "content": text}]
    return messages


def beginning(messages: Messages, others: Messages) -> Messages:
    """Returns the messages that both begin with, and the common beginning of the next two."""
    num = num_common(messages, others)
    shared = messages[:num]
    for one, other in zip(messages[num : num + 1], others[num : num + 1], strict=False):
        if one["role"] == other["role"]:
            text = one["content"] or ""
            cut = text[: num_common(text, other["content"] or "")]
            shared = [*shared, {"role": one["role"], "content": cut}]
    return shared


def num_common(ones: Sequence[Any], others: Sequence[Any]) -> int:
    """Returns the length of the longest common beginning."""
    pairs = enumerate(zip(ones, others, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(ones), len(others)))


def size(messages: Messages) -> int:
    return sum(len(json.dumps(each)) for each in messages)
