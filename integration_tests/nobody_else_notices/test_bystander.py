"""The bystander itself: it sees what happens to its stream."""

import asyncio
import signal

import pytest

from integration_tests.daemons import Fleet
from integration_tests.nobody_else_notices.bystander import bystander


async def test_a_stream_that_nobody_disturbs(serving: Fleet) -> None:
    async with bystander(serving) as seen:
        await seen.until_more(20)


async def test_a_stream_that_ends_is_seen(serving: Fleet) -> None:
    with pytest.raises(AssertionError, match="the bystander's stream ended"):
        async with bystander(serving) as seen:
            [request] = await serving.view("requests")
            path = f"{serving.management}/api/v1/requests/{request['id']}"
            async with serving.http.delete(path) as response:
                assert response.ok
            await seen.until_ended()  # events may be on their way still


async def test_a_stream_that_stalls_is_seen(serving: Fleet) -> None:
    with pytest.raises(AssertionError, match="the bystander's stream stood still"):
        async with bystander(serving, most_gap=0.5) as seen:
            serving.balancer.signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(1.0)  # the stall that this test makes
            finally:
                serving.balancer.signal(signal.SIGCONT)
            await seen.until_more()
