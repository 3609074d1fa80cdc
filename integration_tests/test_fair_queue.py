"""One caller's batch beside another's request; and a batch class that gives way and goes on."""

import asyncio
import json
from typing import Any

from integration_tests.corpus import ENDLESS, LONG_CONTEXT, generate, plain_cases
from integration_tests.daemons import Fleet, until

ENTRIES = 60
LONG = {**ENDLESS, "max_tokens": 300, "temperature": 0, "priority": "batch"}


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


async def _ended(fleet: Fleet) -> list[str]:
    """The ids of the requests that have ended, in that order."""
    async with fleet.http.get(f"{fleet.management}/api/v1/requests?state=ended") as response:
        return [each["id"] for each in reversed((await response.json())["requests"])]


async def test_a_large_batch_delays_nobody_else(fleet: Fleet) -> None:
    await fleet.start_balancer()
    await fleet.start_agent(slots=2)
    cases = plain_cases()
    asked = {f"e{number}": cases[number % len(cases)] for number in range(ENTRIES)}
    ends: dict[str, str] = {}
    bodies = {id: case.body for id, case in asked.items()}
    await fleet.hold()
    batch = asyncio.create_task(_ends(fleet, bodies, ends))
    await fleet.until_streaming(2)
    one = asyncio.create_task(generate(fleet.http, fleet.inference, cases[0].body))
    await fleet.until_num_requests(ENTRIES - 2 + 1, "queued")
    await fleet.let_go()
    answer = await one
    assert answer.text == cases[0].answer
    await batch
    assert ends == {id: case.answer for id, case in asked.items()}
    ended = await _ended(fleet)
    assert len(ended) == ENTRIES + 1
    assert ended.index(answer.end["id"]) < ENTRIES // 2, "it waited behind the batch"


async def test_batch_gives_way_and_its_text_is_whole(fleet: Fleet) -> None:
    await fleet.start_balancer()
    await fleet.start_agent(slots=1, context_size=LONG_CONTEXT)
    whole = await generate(fleet.http, fleet.inference, LONG)
    assert whole.end["timings"]["moves"] == 0

    await fleet.hold()
    batch = asyncio.create_task(generate(fleet.http, fleet.inference, LONG))
    await fleet.until_streaming(1)
    [begun] = await fleet.view("requests")
    body = plain_cases()[0].body | {"priority": "interactive"}
    urgent = asyncio.create_task(generate(fleet.http, fleet.inference, body))

    async def has_given_way() -> bool:
        seen = {each["priority_class"]: each["state"] for each in await fleet.view("requests")}
        return seen == {"batch": "queued", "interactive": "assigned"}

    await until(has_given_way)
    await fleet.let_go()
    answer = await urgent
    assert answer.text == plain_cases()[0].answer
    moved = await batch
    assert moved.text == whole.text
    assert moved.end["usage"]["completion_tokens"] == LONG["max_tokens"]
    assert moved.end["timings"]["moves"] == 1
    assert await _ended(fleet) == [whole.end["id"], answer.end["id"], begun["id"]]


async def test_tiers_and_deadlines_are_obeyed(fleet: Fleet) -> None:
    await fleet.start_balancer()
    await fleet.start_agent(slots=1, context_size=LONG_CONTEXT)
    await fleet.hold()
    late = await generate(fleet.http, fleet.inference, {**ENDLESS, "deadline_ms": 300})
    assert late.end["error"]["code"] == "deadline_exceeded"
    await fleet.until_idle()

    body = {"messages": ENDLESS["messages"], "service_tier": "flex", "stream": True}
    url = f"{fleet.inference}/v1/chat/completions"
    asking = asyncio.create_task(fleet.http.post(url, json=body))
    await fleet.until_streaming(1)
    [seen] = await fleet.view("requests")
    assert seen["priority_class"] == "batch"
    async with await asking as response:
        assert response.status == 200
    await fleet.until_idle()
    await fleet.let_go()
    refused = await generate(fleet.http, fleet.inference, {**ENDLESS, "priority": "urgent"})
    assert (refused.status, refused.end["error"]["field"]) == (400, "priority")
