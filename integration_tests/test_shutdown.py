"""SIGTERM drains: what runs finishes, what is new is refused, and the exit code is 0."""

import asyncio
import signal

import aiohttp
import pytest

from integration_tests.corpus import ENDLESS, LONG_CONTEXT, generate, plain_cases
from integration_tests.daemons import DEADLINE, Fleet, until

TAKES_A_WHILE = ENDLESS | {"max_tokens": 200}

NO_DEADLINE = "600s"
"""Longer than any test."""


async def embed(fleet: Fleet) -> list[float]:
    """One part of a call."""
    body = {"input": ["why do agents dial in? " * 9] * 7}
    async with fleet.http.post(f"{fleet.inference}/api/v1/embed", json=body) as response:
        assert response.status == 200
        vectors = [each["embedding"] for each in (await response.json())["embeddings"]]
    assert len(vectors) == 7
    return list(vectors[-1])


async def count_tokens(fleet: Fleet, prompt: str) -> int:
    body = {"prompt": prompt}
    async with fleet.http.post(f"{fleet.inference}/api/v1/count_tokens", json=body) as response:
        assert response.status == 200
        return int((await response.json())["num_tokens"])


async def open_events(fleet: Fleet) -> aiohttp.ClientResponse:
    """An SSE connection that has shown its first snapshot and stays open."""
    events = await fleet.http.get(f"{fleet.management}/api/v1/events")
    assert (await events.content.readline()).startswith(b"event: snapshot")
    return events


@pytest.mark.asyncio(loop_scope="session")
async def test_agent_finishes_its_streams_and_leaves(bare_fleet: Fleet) -> None:
    leaver = await bare_fleet.start_agent(
        slots=2, context_size=LONG_CONTEXT, drain_timeout=NO_DEADLINE
    )
    await leaver.pace.hold()
    running = [
        asyncio.create_task(generate(bare_fleet.http, bare_fleet.inference, TAKES_A_WHILE))
        for _ in range(2)
    ]
    await bare_fleet.until_streaming(2)

    leaver.signal(signal.SIGTERM)

    async def draining() -> bool:
        agents = await bare_fleet.view("agents")
        return [agent["state"] for agent in agents] == ["draining"]

    await until(draining)
    newcomer = asyncio.create_task(
        generate(bare_fleet.http, bare_fleet.inference, plain_cases()[0].body)
    )
    await bare_fleet.until_num_requests(1, "queued")
    await leaver.pace.let_go()
    for answer in await asyncio.gather(*running):
        assert answer.end["finish_reason"] == "length"
        assert answer.end["usage"]["completion_tokens"] == 200
    assert await leaver.exit_code() == 0

    await bare_fleet.start_agent()
    assert (await newcomer).text == plain_cases()[0].answer


async def test_what_an_agent_gives_back_ends_where_no_other_is(fleet: Fleet) -> None:
    await fleet.start_balancer(buffered_request_timeout="200ms")
    agent = await fleet.start_agent(context_size=LONG_CONTEXT, drain_timeout="300ms")
    await fleet.hold()
    running = asyncio.create_task(generate(fleet.http, fleet.inference, ENDLESS))
    await fleet.until_streaming(1)

    assert await agent.terminate() == 0
    end = (await running).end
    assert end["event"] == "error"
    assert end["error"]["code"] == "shutting_down"


@pytest.mark.asyncio(loop_scope="session")
async def test_agent_answers_the_queries_it_has_taken(bare_fleet: Fleet) -> None:
    """Two parts are with the agent and a third waits; so do a request and a count, in its drain."""
    leaver = await bare_fleet.start_agent(
        slots=1, context_size=LONG_CONTEXT, drain_timeout=NO_DEADLINE
    )
    await leaver.pace.hold()
    running = asyncio.create_task(generate(bare_fleet.http, bare_fleet.inference, TAKES_A_WHILE))
    await bare_fleet.until_streaming(1)
    embeddings = [asyncio.create_task(embed(bare_fleet)) for _ in range(3)]
    await bare_fleet.until_metrics(arriero_query_parts_asked=2, arriero_query_parts_waiting=1)

    leaver.signal(signal.SIGTERM)

    async def draining() -> bool:
        return [agent["state"] for agent in await bare_fleet.view("agents")] == ["draining"]

    await until(draining)
    queued = asyncio.create_task(
        generate(bare_fleet.http, bare_fleet.inference, plain_cases()[0].body)
    )
    counted = asyncio.create_task(count_tokens(bare_fleet, "once"))
    await bare_fleet.until_metrics(arriero_query_parts_asked=2, arriero_query_parts_waiting=2)
    await bare_fleet.until_num_requests(3, "queued")
    await leaver.pace.let_go()
    assert await leaver.exit_code() == 0
    assert (await running).end["finish_reason"] == "length"

    async def are_answered() -> bool:
        return sum(call.done() for call in embeddings) == 2

    await until(are_answered)
    await bare_fleet.until_metrics(arriero_query_parts_asked=0, arriero_query_parts_waiting=2)

    await bare_fleet.start_agent()
    assert (await queued).text == plain_cases()[0].answer
    assert await counted > 0
    first, second, third = await asyncio.gather(*embeddings)
    assert first == pytest.approx(second, abs=1e-3)
    assert first == pytest.approx(third, abs=1e-3)
    await bare_fleet.until_metrics(arriero_query_parts_asked=0, arriero_query_parts_waiting=0)


@pytest.mark.asyncio(loop_scope="session")
async def test_agent_hands_back_at_its_deadline_what_it_has_not_answered(bare_fleet: Fleet) -> None:
    leaver = await bare_fleet.start_agent(drain_timeout="50ms")
    await leaver.pace.hold()
    embeddings = [asyncio.create_task(embed(bare_fleet)) for _ in range(2)]
    await bare_fleet.until_metrics(arriero_query_parts_asked=2)

    assert await leaver.terminate() == 0
    assert not any(call.done() for call in embeddings)
    await bare_fleet.until_metrics(arriero_query_parts_asked=0, arriero_query_parts_waiting=2)
    await bare_fleet.start_agent()
    first, second = await asyncio.gather(*embeddings)
    assert first == pytest.approx(second, abs=1e-3)


async def test_draining_balancer_keeps_nobody_waiting_for_an_agent(fleet: Fleet) -> None:
    balancer = await fleet.start_balancer(
        buffered_request_timeout=NO_DEADLINE, drain_timeout=NO_DEADLINE
    )
    waiting = [
        asyncio.create_task(fleet.http.post(f"{fleet.inference}/api/v1/{path}", json=body))
        for path, body in (
            ("embed", {"input": "once"}),
            ("count_tokens", {"prompt": "once"}),
            ("generate", {"prompt": "once"}),
        )
    ]
    await fleet.until_num_requests(3, "queued")
    assert await balancer.terminate() == 0
    for answer in await asyncio.gather(*waiting):
        assert answer.status == 503
        assert (await answer.json())["error"]["code"] == "shutting_down"


async def test_balancer_finishes_its_streams_with_sse_open(fleet: Fleet) -> None:
    balancer = await fleet.start_balancer(drain_timeout=NO_DEADLINE)
    await fleet.start_agent(slots=2, context_size=LONG_CONTEXT)
    await fleet.hold()
    running = [
        asyncio.create_task(generate(fleet.http, fleet.inference, TAKES_A_WHILE)) for _ in range(2)
    ]
    await fleet.until_streaming(2)
    events = await open_events(fleet)

    balancer.signal(signal.SIGTERM)
    await balancer.until_line(balancer.stderr, "drain")
    await fleet.let_go()
    for answer in await asyncio.gather(*running):
        assert answer.end["finish_reason"] == "length"
    assert await balancer.exit_code() == 0
    await events.read()


async def test_draining_balancer_refuses_what_is_new(fleet: Fleet) -> None:
    balancer = await fleet.start_balancer(drain_timeout=NO_DEADLINE)
    await fleet.start_agent(slots=2, context_size=LONG_CONTEXT)
    await fleet.hold()
    running = asyncio.create_task(generate(fleet.http, fleet.inference, TAKES_A_WHILE))
    async with fleet.http.ws_connect(f"{fleet.inference}/api/v1/socket") as ws:
        await fleet.until_streaming(1)
        balancer.signal(signal.SIGTERM)
        await balancer.until_line(balancer.stderr, "drain")
        await ws.send_json({"jsonrpc": "2.0", "id": 1, "method": "generate", "params": ENDLESS})
        refusal = await ws.receive_json(timeout=DEADLINE)
    await fleet.let_go()
    assert refusal["error"]["data"]["code"] == "shutting_down"
    assert (await running).end["finish_reason"] == "length"
    assert await balancer.exit_code() == 0


async def test_balancer_ends_the_rest_at_its_deadline(fleet: Fleet) -> None:
    balancer = await fleet.start_balancer(drain_timeout="300ms")
    await fleet.start_agent(slots=1, context_size=LONG_CONTEXT)
    await fleet.hold()
    streaming = asyncio.create_task(generate(fleet.http, fleet.inference, ENDLESS))
    await fleet.until_streaming(1)
    queued = asyncio.create_task(generate(fleet.http, fleet.inference, ENDLESS))
    await fleet.until_num_requests(1, "queued")

    assert await balancer.terminate() == 0
    assert (await streaming).end["error"]["code"] == "shutting_down"
    refused = await queued
    assert (refused.status, refused.end["error"]["code"]) == (503, "shutting_down")


async def test_agents_come_back_to_a_new_balancer(fleet: Fleet) -> None:
    balancer = await fleet.start_balancer()
    await fleet.start_agent()
    assert await balancer.terminate() == 0

    await fleet.restart_balancer(
        buffered_request_timeout=NO_DEADLINE,
    )
    answer = await generate(fleet.http, fleet.inference, plain_cases()[0].body)
    assert answer.text == plain_cases()[0].answer


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_exits_at_once(fleet: Fleet, number: signal.Signals) -> None:
    balancer = await fleet.start_balancer(drain_timeout=NO_DEADLINE)
    agent = await fleet.start_agent(slots=1, context_size=LONG_CONTEXT)
    await fleet.hold()
    running = asyncio.create_task(generate(fleet.http, fleet.inference, ENDLESS))
    await fleet.until_streaming(1)

    balancer.signal(number)
    await balancer.until_line(balancer.stderr, "drain")
    balancer.signal(number)
    assert await balancer.exit_code() != 0
    with pytest.raises(aiohttp.ClientError):
        await running
    assert await agent.terminate() == 0
