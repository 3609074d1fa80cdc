"""One caller's batch beside another's request; and a batch class that gives way and goes on."""

import asyncio
import json
from typing import Any

from integration_tests.corpus import ENDLESS, LONG_CONTEXT, generate, plain_cases
from integration_tests.daemons import Fleet

ENTRIES = 60
LONG = {**ENDLESS, "max_tokens": 1200, "temperature": 0, "priority": "batch"}
"""Takes far longer than a plain case."""


async def _ends(fleet: Fleet, entries: dict[str, Any], ends: dict[str, str]) -> None:
    """The texts of a batch, filled in as its entries end."""
    texts = dict.fromkeys(entries, "")
    url = f"{fleet.inference}/api/v1/generate_batch"
    requests = [{"id": id, **body} for id, body in entries.items()]
    async with fleet.http.post(url, json={"requests": requests}) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            event = json.loads(line)
            if event["event"] == "token":
                texts[event["id"]] += event["text"]
            assert event["event"] != "error", event
            if event["event"] == "done":
                ends[event["id"]] = texts[event["id"]]


async def test_a_large_batch_delays_nobody_else(fleet: Fleet) -> None:
    await fleet.start_balancer()
    await fleet.start_agent(slots=2)
    cases = plain_cases()
    asked = {f"e{number}": cases[number % len(cases)] for number in range(ENTRIES)}
    ends: dict[str, str] = {}
    bodies = {id: case.body for id, case in asked.items()}
    batch = asyncio.create_task(_ends(fleet, bodies, ends))
    await fleet.until_num_requests(2, "streaming")
    answer = await generate(fleet.http, fleet.inference, cases[0].body)
    assert answer.text == cases[0].answer
    assert len(ends) < ENTRIES // 2, "it waited behind the batch"
    await batch
    assert ends == {id: case.answer for id, case in asked.items()}


async def test_batch_gives_way_and_its_text_is_whole(fleet: Fleet) -> None:
    await fleet.start_balancer()
    await fleet.start_agent(slots=1, context_size=LONG_CONTEXT)
    whole = await generate(fleet.http, fleet.inference, LONG)
    assert whole.end["timings"]["moves"] == 0

    batch = asyncio.create_task(generate(fleet.http, fleet.inference, LONG))
    await fleet.until_num_requests(1, "streaming")
    body = plain_cases()[0].body | {"priority": "interactive"}
    answer = await generate(fleet.http, fleet.inference, body)
    assert answer.text == plain_cases()[0].answer
    assert not batch.done(), "the batch request came to its end first"
    [seen] = await fleet.view("requests")
    assert (seen["priority_class"], seen["moves"]) == ("batch", 1)
    moved = await batch
    assert moved.text == whole.text
    assert moved.end["usage"]["completion_tokens"] == LONG["max_tokens"]
    assert moved.end["timings"]["moves"] == 1


async def test_tiers_and_deadlines_are_obeyed(fleet: Fleet) -> None:
    await fleet.start_balancer()
    await fleet.start_agent(slots=1, context_size=LONG_CONTEXT)
    late = await generate(fleet.http, fleet.inference, {**ENDLESS, "deadline_ms": 300})
    assert late.end["error"]["code"] == "deadline_exceeded"
    body = {"messages": ENDLESS["messages"], "service_tier": "flex", "stream": True}
    async with fleet.http.post(f"{fleet.inference}/v1/chat/completions", json=body) as response:
        assert response.status == 200
        await response.content.readline()
        [seen] = await fleet.view("requests")
        assert seen["priority_class"] == "batch"
    await fleet.until_idle()
    refused = await generate(fleet.http, fleet.inference, {**ENDLESS, "priority": "urgent"})
    assert (refused.status, refused.end["error"]["field"]) == (400, "priority")
