"""Conversations with real agents, over HTTP: what each answer's end says, and when it began."""

import asyncio
import json
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp

from bench.routing.simulation import Outcome
from bench.routing.workloads import Conversation
from integration_tests.daemons import Fleet

DEADLINE = 900.0
"""Seconds for all conversations together."""

ROLES = {"system": "System", "user": "User", "assistant": "Assistant"}


async def converse(
    model: Path, conversations: list[Conversation], routing: str, *, num_agents: int, slots: int
) -> Outcome:
    """All conversations, with `num_agents` agents of one thread each."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(
            routing=routing, max_buffered_requests=10_000, buffered_request_timeout="10m"
        )
        for number in range(num_agents):
            await fleet.start_agent(
                model=model,
                slots=slots,
                context_size=4096,
                threads=1,
                host_cache=0,
                name=f"host-{number + 1}",
            )
        outcome = Outcome()
        start = time.perf_counter()
        async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as talks:
            for each in conversations:
                talks.create_task(_talk(fleet.http, fleet.inference, each, outcome))
        outcome.seconds = time.perf_counter() - start
        return outcome


async def _talk(
    http: aiohttp.ClientSession, url: str, conversation: Conversation, outcome: Outcome
) -> None:
    """The turns, one after the other. Models without a template get the messages as plain text."""
    await asyncio.sleep(conversation.begins_at)
    text = ""
    for turn in conversation.turns:
        await asyncio.sleep(turn.pause)
        text += "".join(f"{ROLES[each.role]}: {each.text}\n" for each in turn.added)
        answer, end = await _ask(http, url, text, turn.num_tokens, outcome)
        text += f"{answer}\n"
        usage = end["usage"]
        outcome.num_prompt += usage["prompt_tokens"]
        outcome.num_cached += usage["cached_tokens"]
        outcome.by_agent = dict(Counter(outcome.by_agent) + Counter([end["agent"]]))


async def _ask(
    http: aiohttp.ClientSession, url: str, prompt: str, num_tokens: int, outcome: Outcome
) -> tuple[str, dict[str, Any]]:
    body = {"prompt": prompt, "max_tokens": num_tokens, "ignore_eos": True, "temperature": 0}
    sent_at = time.perf_counter()
    texts: list[str] = []
    event: dict[str, Any] = {}
    timeout = aiohttp.ClientTimeout(total=DEADLINE)
    async with http.post(f"{url}/api/v1/generate", json=body, timeout=timeout) as response:
        async for line in response.content:
            event = json.loads(line)  # some say that it waits, or that its prompt was computed
            if event["event"] == "token":
                if not texts:
                    outcome.first_tokens.append(time.perf_counter() - sent_at)
                texts.append(event["text"])
    if event.get("event") != "done":
        raise RuntimeError(f"a request failed: {event}")
    return "".join(texts), event
