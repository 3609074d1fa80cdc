"""The bystander itself: it sees what happens to its stream."""

import asyncio
import signal

import pytest

from integration_tests.daemons import Fleet
from integration_tests.nobody_else_notices.bystander import bystander

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_stream_that_nobody_disturbs(long_fleet: Fleet) -> None:
    async with bystander(long_fleet) as seen:
        await seen.until_more(20)


async def test_a_stream_that_ends_is_seen(long_fleet: Fleet) -> None:
    with pytest.raises(AssertionError, match="the bystander's stream ended"):
        async with bystander(long_fleet) as seen:
            [request] = await long_fleet.view("requests")
            path = f"{long_fleet.management}/api/v1/requests/{request['id']}"
            async with long_fleet.http.delete(path) as response:
                assert response.ok
            await seen.until_ended()  # events may be on their way still


async def test_a_stream_that_stalls_is_seen(long_fleet: Fleet) -> None:
    with pytest.raises(AssertionError, match="the bystander's stream stood still"):
        async with bystander(long_fleet, most_gap=0.5) as seen:
            long_fleet.balancer.signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(1.0)  # the stall that this test makes
            finally:
                long_fleet.balancer.signal(signal.SIGCONT)
            await seen.until_more()
