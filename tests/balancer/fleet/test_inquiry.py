import asyncio

import pytest

from arriero.balancer.fleet.inquiry import Inquiry
from arriero.shared.errors import QueueTimeout
from arriero.shared.inference import RequestId
from arriero.shared.queries import Tokenized

RESULTS = (Tokenized(tokens=(1,)),)


def make() -> tuple[Inquiry, list[RequestId]]:
    closed: list[RequestId] = []
    return Inquiry(RequestId("q"), closed.append), closed


async def test_the_results() -> None:
    inquiry, closed = make()
    with inquiry:
        inquiry.settle(RESULTS)
        assert await inquiry.results() == RESULTS
    assert closed == []


async def test_the_error() -> None:
    inquiry, closed = make()
    with inquiry:
        inquiry.settle(QueueTimeout("late"))
        with pytest.raises(QueueTimeout, match="late"):
            await inquiry.results()
    assert closed == []


async def test_a_reader_that_goes_withdraws_it_once() -> None:
    inquiry, closed = make()
    with inquiry:
        reading = asyncio.create_task(inquiry.results())
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
    inquiry.close()
    assert closed == ["q"]
    inquiry.settle(RESULTS)
