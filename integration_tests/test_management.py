"""What operators see of a real fleet: agents, requests, events, metrics."""

import asyncio
import json
from typing import Any

from integration_tests.corpus import ENDLESS, LONG_CONTEXT, generate, plain_cases
from integration_tests.daemons import Fleet


async def metrics(fleet: Fleet) -> dict[str, float]:
    """Every sample of `/metrics`, by name and labels."""
    async with fleet.http.get(f"{fleet.management}/metrics") as response:
        assert response.status == 200
        text = await response.text()
    samples = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


async def test_agents_and_requests(fleet: Fleet) -> None:
    await fleet.start_balancer()
    await fleet.start_agent(name="box", slots=3, context_size=LONG_CONTEXT)
    running = asyncio.create_task(generate(fleet.http, fleet.inference, ENDLESS))
    await fleet.until_num_requests(1, "streaming")

    (agent,) = await fleet.view("agents")
    assert agent["name"] == "box"
    assert agent["state"] == "ready"
    assert agent["slots"] == {"total": 3, "busy": 1}
    assert agent["model"]["name"] == "arriero-demo"
    assert agent["issues"] == []
    async with fleet.http.get(f"{fleet.management}/api/v1/agents/{agent['id']}") as response:
        assert (await response.json())["name"] == "box"
    async with fleet.http.get(f"{fleet.management}/api/v1/agents/nobody") as response:
        assert response.status == 404

    (request,) = await fleet.view("requests")
    url = f"{fleet.management}/api/v1/requests/{request['id']}"
    async with fleet.http.delete(url) as response:
        assert response.status in (200, 202, 204)
    assert (await running).end["finish_reason"] == "cancelled"
    async with fleet.http.delete(url) as response:
        assert response.status == 404


async def test_metrics_count_what_happened(fleet: Fleet) -> None:
    await fleet.start_balancer(max_buffered_requests=0)
    await fleet.start_agent(slots=8)
    before = await metrics(fleet)
    assert before['arriero_slots{agent="agent-1",state="total"}'] == 8
    answers = await asyncio.gather(
        *(generate(fleet.http, fleet.inference, case.body) for case in plain_cases()[:8])
    )
    after = await metrics(fleet)

    num_tokens = sum(answer.end["usage"]["completion_tokens"] for answer in answers)
    assert after['arriero_tokens_total{kind="completion"}'] == num_tokens
    assert after['arriero_requests_total{code="stop"}'] == 8
    assert after["arriero_first_token_seconds_count"] == 8
    assert after["arriero_between_tokens_seconds_count"] > 8
    assert after["arriero_queue_depth"] == 0
    assert after["arriero_queue_limit"] == 0


async def next_event(content: Any) -> tuple[str, Any]:
    """The next SSE event's name and data; comments are passed over."""
    name = ""
    async for line in content:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text.removeprefix("event: ")
        elif text.startswith("data: "):
            return name, json.loads(text.removeprefix("data: "))
    raise AssertionError("the stream of events ended")


async def test_events_show_the_fleet_first_and_then_its_changes(fleet: Fleet) -> None:
    await fleet.start_balancer()
    async with fleet.http.get(f"{fleet.management}/api/v1/events") as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert await next_event(response.content) == ("fleet", _Snapshot(agents=[]))
        await fleet.start_agent(name="box")
        while True:
            name, data = await next_event(response.content)
            if name == "fleet" and [agent["name"] for agent in data["agents"]] == ["box"]:
                break

        answer = asyncio.create_task(
            generate(fleet.http, fleet.inference, ENDLESS | {"max_tokens": 500})
        )
        while True:
            name, data = await next_event(response.content)
            if name == "throughput" and data["tokens_per_second"] > 0:
                break
        await answer


class _Snapshot(dict[str, Any]):
    """Equal to any dict that holds at least these items."""

    def __init__(self, **items: Any) -> None:
        super().__init__(items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and self.items() <= other.items()

    __hash__ = None  # type: ignore[assignment]
