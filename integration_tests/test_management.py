"""What operators see of a real fleet: agents, requests, events, metrics."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from integration_tests.corpus import ENDLESS, LONG_CONTEXT, UNENDING, generate, plain_cases
from integration_tests.daemons import Fleet, until


async def metrics(fleet: Fleet) -> dict[str, float]:
    """Every sample of `/metrics`, by name and labels."""
    async with fleet.http.get(f"{fleet.management}/metrics") as response:
        assert response.status == 200
        text = await response.text()
    samples = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


@pytest.mark.asyncio(loop_scope="session")
async def test_agents_and_requests(bare_fleet: Fleet) -> None:
    await bare_fleet.start_agent(name="box", slots=3, context_size=LONG_CONTEXT, kernels="plain")
    running = asyncio.create_task(generate(bare_fleet.http, bare_fleet.inference, UNENDING))
    await bare_fleet.until_num_requests(1, "streaming")

    (agent,) = await bare_fleet.view("agents")
    assert agent["name"] == "box"
    assert agent["state"] == "ready"
    assert agent["slots"] == {"total": 3, "busy": 1}
    assert agent["model"]["name"] == "arriero-demo"
    assert agent["model"]["kernels"] == "plain"
    assert agent["issues"] == []
    async with bare_fleet.http.get(
        f"{bare_fleet.management}/api/v1/agents/{agent['id']}"
    ) as response:
        assert (await response.json())["name"] == "box"
    async with bare_fleet.http.get(f"{bare_fleet.management}/api/v1/agents/nobody") as response:
        assert response.status == 404

    (request,) = await bare_fleet.view("requests")
    url = f"{bare_fleet.management}/api/v1/requests/{request['id']}"
    async with bare_fleet.http.delete(url) as response:
        assert response.status in (200, 202, 204)
    assert (await running).end["finish_reason"] == "cancelled"
    async with bare_fleet.http.delete(url) as response:
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
    assert after["arriero_between_tokens_seconds_count"] > 0
    assert after["arriero_queue_depth"] == 0
    assert after["arriero_queue_limit"] == 0


async def statistics(fleet: Fleet, condition: Callable[[Any], bool] = bool) -> Any:
    """The statistics of the only agent's engine, once they meet `condition`."""
    found: list[Any] = []

    async def met() -> bool:
        (agent,) = await fleet.view("agents")
        found[:] = [agent["statistics"]]
        return condition(agent["statistics"])

    await until(met)
    return found[0]


@pytest.mark.asyncio(loop_scope="session")
async def test_an_engine_tells_what_it_did(bare_fleet: Fleet) -> None:
    await bare_fleet.start_agent(name="box")
    before = await statistics(bare_fleet)
    assert before["prefill_tokens_per_second"] is None
    assert before["decode_tokens_per_second"] is None
    assert before["average_sequences"] is None
    assert before["cells"]["used"] == before["cells"]["kept"] == 0
    assert before["cells"]["total"] > 0

    body = {"prompt": "The mules walk to the next town. " * 20, "max_tokens": 8, "temperature": 0}
    first, second = [
        (await generate(bare_fleet.http, bare_fleet.inference, body)).end["usage"] for _ in range(2)
    ]
    assert first["cached_tokens"] == 0
    assert 0 < second["cached_tokens"] < second["prompt_tokens"] == first["prompt_tokens"]
    cached, prompt = second["cached_tokens"], first["prompt_tokens"]

    completion = first["completion_tokens"] + second["completion_tokens"]
    after = await statistics(
        bare_fleet,
        lambda each: (
            each["completion_tokens_total"] == completion and each["sequences"]["running"] == 0
        ),
    )
    assert after["cached_tokens_total"] == cached
    assert after["computed_tokens_total"] == 2 * prompt - cached
    assert after["prefill_tokens_per_second"] > 0
    assert after["decode_tokens_per_second"] > 0
    assert after["throughput_tokens_per_second"] > 0
    assert after["average_sequences"] == 1.0
    assert after["cells"]["used"] == 0
    assert prompt <= after["cells"]["kept"] < after["cells"]["total"]

    samples = await metrics(bare_fleet)
    box = 'arriero_agent_{}{{agent="box"{}}}'
    assert samples[box.format("prompt_tokens_total", ',source="cached"')] == cached
    assert samples[box.format("prompt_tokens_total", ',source="computed"')] == 2 * prompt - cached
    assert samples[box.format("kv_cells", ',state="kept"')] == after["cells"]["kept"]
    assert samples[box.format("decode_tokens_per_second", "")] > 0
    assert samples[box.format("preemptions_total", "")] == 0
    assert samples[box.format("stall_seconds_bucket", ',le="+Inf"')] == after["stalls_total"]


@pytest.mark.parametrize("ending", ["stop string", "cancel"])
@pytest.mark.asyncio(loop_scope="session")
async def test_cached_tokens_are_told_however_an_answer_ends(
    bare_fleet: Fleet, ending: str
) -> None:
    await bare_fleet.start_agent(slots=1, context_size=LONG_CONTEXT)
    whole = await generate(bare_fleet.http, bare_fleet.inference, ENDLESS | {"max_tokens": 30})
    if ending == "cancel":
        await bare_fleet.hold()
        running = asyncio.create_task(generate(bare_fleet.http, bare_fleet.inference, ENDLESS))
        await bare_fleet.until_streaming(1)
        (request,) = await bare_fleet.view("requests")
        await bare_fleet.http.delete(f"{bare_fleet.management}/api/v1/requests/{request['id']}")
        await bare_fleet.let_go()
        answer = await running
        assert answer.end["finish_reason"] == "cancelled"
        idle = await statistics(bare_fleet, lambda each: each["sequences"]["running"] == 0)
        assert idle["cells"]["used"] == 0
    else:
        body = ENDLESS | {"stop": [whole.text[-5:]]}
        answer = await generate(bare_fleet.http, bare_fleet.inference, body)
        assert answer.end["finish_reason"] == "stop"
    usage = answer.end["usage"]
    assert 0 < usage["cached_tokens"] < usage["prompt_tokens"]
    assert usage["completion_tokens"] > 0


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


@pytest.mark.asyncio(loop_scope="session")
async def test_events_show_the_fleet_first_and_then_its_changes(bare_fleet: Fleet) -> None:
    async with bare_fleet.http.get(f"{bare_fleet.management}/api/v1/events") as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert await next_event(response.content) == ("snapshot", _Snapshot(agents=[]))
        await bare_fleet.start_agent(name="box")
        while True:
            name, data = await next_event(response.content)
            if name == "delta" and "agents" in data:
                assert [agent["name"] for agent in data["agents"]] == ["box"]
                break

        answer = asyncio.create_task(generate(bare_fleet.http, bare_fleet.inference, UNENDING))
        while True:
            name, data = await next_event(response.content)
            if name == "throughput" and data["tokens_per_second"] > 0:
                break
        answer.cancel()


class _Snapshot(dict[str, Any]):
    """Equal to any dict that holds at least these items."""

    def __init__(self, **items: Any) -> None:
        super().__init__(items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and self.items() <= other.items()

    __hash__ = None  # type: ignore[assignment]
