import asyncio

import pytest

from arriero.balancer.fleet.runtime.stream import QueryHandle
from arriero.shared.errors import QueueTimeout
from arriero.shared.inference import RequestId
from arriero.shared.queries import Tokenized

RESULTS = (Tokenized(tokens=(1,)),)


def make() -> tuple[QueryHandle, list[RequestId]]:
    closed: list[RequestId] = []
    return QueryHandle(RequestId("q"), closed.append), closed


async def test_the_results() -> None:
    handle, closed = make()
    with handle:
        handle.settle(RESULTS)
        assert await handle.results() == RESULTS
    assert closed == []


async def test_the_error() -> None:
    handle, closed = make()
    with handle:
        handle.settle(QueueTimeout("late"))
        with pytest.raises(QueueTimeout, match="late"):
            await handle.results()
    assert closed == []


async def test_a_reader_that_goes_withdraws_it_once() -> None:
    handle, closed = make()
    with handle:
        reading = asyncio.create_task(handle.results())
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
    handle.close()
    assert closed == ["q"]
    handle.settle(RESULTS)
