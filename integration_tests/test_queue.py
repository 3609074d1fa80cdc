"""The queue as clients meet it: its limit, its deadline, and waiting for agents that come later."""

import asyncio

import pytest

from integration_tests.corpus import ENDLESS, generate, plain_cases
from integration_tests.daemons import Fleet


async def test_over_the_limit_is_503_with_retry_after(fleet: Fleet) -> None:
    await fleet.start_balancer(max_buffered_requests=2)
    waiting = [
        asyncio.create_task(generate(fleet.http, fleet.inference, plain_cases()[0].body))
        for _ in range(2)
    ]
    await fleet.until_num_requests(2, "queued")

    async with fleet.http.post(
        f"{fleet.inference}/api/v1/generate", json=plain_cases()[0].body
    ) as response:
        assert response.status == 503
        assert int(response.headers["Retry-After"]) >= 1
        error = (await response.json())["error"]
    assert error["code"] == "queue_full"
    assert error["retryable"] is True

    await fleet.start_agent()
    for task in waiting:
        assert (await task).text == plain_cases()[0].answer


async def test_without_a_queue_a_full_fleet_refuses(fleet: Fleet) -> None:
    await fleet.start_balancer(max_buffered_requests=0)
    refused = await generate(fleet.http, fleet.inference, plain_cases()[0].body)
    assert (refused.status, refused.end["error"]["code"]) == (503, "queue_full")

    await fleet.start_agent(slots=1)
    answered = await generate(fleet.http, fleet.inference, plain_cases()[0].body)
    assert answered.text == plain_cases()[0].answer


async def test_over_the_deadline_is_504(fleet: Fleet) -> None:
    await fleet.start_balancer(buffered_request_timeout="200ms")
    answer = await generate(fleet.http, fleet.inference, plain_cases()[0].body)
    assert (answer.status, answer.end["error"]["code"]) == (504, "queue_timeout")
    assert not await fleet.view("requests")


@pytest.mark.asyncio(loop_scope="session")
async def test_agents_may_come_after_the_requests(bare_fleet: Fleet) -> None:
    async with bare_fleet.http.get(f"{bare_fleet.inference}/ready") as response:
        assert response.status == 503
    asked = plain_cases()[:6]
    waiting = [
        asyncio.create_task(generate(bare_fleet.http, bare_fleet.inference, case.body))
        for case in asked
    ]
    await bare_fleet.until_num_requests(6, "queued")

    await bare_fleet.start_agent(slots=2)
    assert [(await task).text for task in waiting] == [case.answer for case in asked]
    async with bare_fleet.http.get(f"{bare_fleet.inference}/ready") as response:
        assert response.status == 200


@pytest.mark.asyncio(loop_scope="session")
async def test_requests_start_in_the_order_they_came(bare_fleet: Fleet) -> None:
    tasks = []
    for number in range(5):
        body = plain_cases()[number].body | {"max_tokens": 4}
        answer = generate(bare_fleet.http, bare_fleet.inference, body)
        tasks.append(asyncio.create_task(answer))
        await bare_fleet.until_num_requests(number + 1, "queued")
    await bare_fleet.start_agent(slots=1)
    asked = [answer.end["id"] for answer in await asyncio.gather(*tasks)]
    url = f"{bare_fleet.management}/api/v1/requests?state=ended"
    async with bare_fleet.http.get(url) as response:
        latest = [each["id"] for each in (await response.json())["requests"]]
    assert latest[:5] == asked[::-1]


@pytest.mark.asyncio(loop_scope="session")
async def test_one_more_than_the_slots_waits_for_a_slot(small_fleet: Fleet) -> None:
    await small_fleet.hold()
    endless = [
        asyncio.create_task(generate(small_fleet.http, small_fleet.inference, ENDLESS))
        for _ in range(2)
    ]
    await small_fleet.until_streaming(2)
    waiting = asyncio.create_task(
        generate(small_fleet.http, small_fleet.inference, plain_cases()[0].body)
    )
    await small_fleet.until_num_requests(1, "queued")
    assert await small_fleet.busy_slots() == 2

    endless[0].cancel()
    await small_fleet.until_num_requests(1, "assigned")
    assert not endless[1].done()
    endless[1].cancel()
    await small_fleet.let_go()
    assert (await waiting).text == plain_cases()[0].answer
    await small_fleet.until_idle()
