import asyncio

import pytest

from arriero.balancer.api.common.merge import EventStream, Merged, open_all, or_refusal
from arriero.shared.errors import QueueFull
from arriero.shared.inference import Event, Failed, GenerateRequest, Token
from tests.balancer.api.fake_runtime import FakeFleetRuntime, done, echo

REQUESTS = [GenerateRequest(prompt=name) for name in "abc"]


async def read(merged: Merged) -> list[list[tuple[int, Event]]]:
    return [events async for events in merged]


def of(number: int, batches: list[list[tuple[int, Event]]]) -> list[Event]:
    return [event for events in batches for stream, event in events if stream == number]


async def test_all_events_of_each_stream_in_order() -> None:
    runtime = FakeFleetRuntime(echo)
    async with Merged(open_all(runtime.open, REQUESTS)) as merged:
        batches = await read(merged)
    for number, request in enumerate(REQUESTS):
        assert of(number, batches) == echo(request)
    assert all(batches)


async def test_what_is_ready_comes_in_one_list() -> None:
    runtime = FakeFleetRuntime(echo)
    async with Merged(open_all(runtime.open, REQUESTS)) as merged:
        batches = await read(merged)
    assert len(batches) < sum(map(len, batches))


def test_a_refused_stream_holds_nothing_of_its_request() -> None:
    error = QueueFull("full")

    def refuses(_request: GenerateRequest) -> EventStream:
        raise error

    or_refusal(refuses)(REQUESTS[0])
    assert error.__traceback__ is None


async def test_one_stream_needs_no_other() -> None:
    runtime = FakeFleetRuntime()
    async with Merged(open_all(runtime.open, REQUESTS)) as merged:
        runtime.streams[1].say(Token("x"))
        iterator = aiter(merged)
        assert await anext(iterator) == [(1, Token("x"))]


async def test_leaving_closes_every_stream() -> None:
    runtime = FakeFleetRuntime()
    with pytest.raises(KeyError):
        async with Merged(open_all(runtime.open, REQUESTS)):
            raise KeyError
    assert runtime.num_open == 0


async def test_being_cancelled_closes_every_stream() -> None:
    runtime = FakeFleetRuntime()

    async def reader() -> None:
        async with Merged(open_all(runtime.open, REQUESTS)) as merged:
            await read(merged)

    task = asyncio.create_task(reader())
    await runtime.opened(3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert runtime.num_open == 0


async def test_a_slow_reader_holds_the_streams_back() -> None:
    runtime = FakeFleetRuntime()
    async with Merged(open_all(runtime.open, REQUESTS)) as merged:
        for stream in runtime.streams:
            stream.say(*[Token("x")] * 100, done())
        iterator = aiter(merged)
        await anext(iterator)
        # As many as the queue takes, and one in the hand of each stream's pump.
        num_delivered = sum(stream.num_delivered for stream in runtime.streams)
        assert num_delivered <= 2 * len(REQUESTS)


async def test_open_all_leaves_none_open_when_one_is_refused() -> None:
    runtime = FakeFleetRuntime()
    runtime.refusals = [None, None, QueueFull("full")]
    with pytest.raises(QueueFull):
        open_all(runtime.open, REQUESTS)
    assert len(runtime.streams) == 2
    assert runtime.num_open == 0


async def test_a_refusal_can_take_a_streams_place() -> None:
    runtime = FakeFleetRuntime(echo)
    runtime.refusals = [None, QueueFull("full"), None]
    async with Merged(open_all(or_refusal(runtime.open), REQUESTS)) as merged:
        batches = await read(merged)
    assert of(0, batches) == echo(REQUESTS[0])
    assert of(1, batches) == [Failed(QueueFull("full"))]
    assert of(2, batches) == echo(REQUESTS[2])


async def test_collect_takes_errors_as_they_are() -> None:
    runtime = FakeFleetRuntime(echo)
    runtime.refusals = [QueueFull("full")]
    async with Merged(open_all(or_refusal(runtime.open), REQUESTS[:2])) as merged:
        refused, answered = await merged.collect()
    assert refused.end == Failed(QueueFull("full"))
    assert answered.text() == "you said: b"
