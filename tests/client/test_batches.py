import asyncio
from collections.abc import Iterator

from arriero.client.batches import ASK_AGAIN, run_batch
from arriero.client.errors import ArrieroError


async def two() -> int:
    return 2


async def test_results_come_as_they_end_and_errors_stop_nobody() -> None:
    async def call(number: int) -> int:
        if number == 1:
            raise ArrieroError("no")
        return number * 10

    results = [result async for result in run_batch(call, iter(range(5)), concurrency=two)]
    assert {result.index: result.answer for result in results if not result.error} == {
        0: 0,
        2: 20,
        3: 30,
        4: 40,
    }
    [failed] = [result for result in results if result.error]
    assert (failed.index, str(failed.error)) == (1, "no")


async def test_no_more_run_or_are_read_than_wanted() -> None:
    num_running = most = num_read = 0

    def requests() -> Iterator[int]:
        nonlocal num_read
        for number in range(20):
            num_read += 1
            yield number

    async def call(_: int) -> None:
        nonlocal num_running, most
        num_running += 1
        most = max(most, num_running)
        await asyncio.sleep(0)
        num_running -= 1

    async for result in run_batch(call, requests(), concurrency=two):
        assert num_read <= result.index + 4
    assert (most, num_read) == (2, 20)


async def test_leaving_cancels_what_runs() -> None:
    cancelled = []

    async def call(number: int) -> int:
        if number == 0:
            return 0
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return number

    results = run_batch(call, iter(range(9)), concurrency=two)
    assert (await anext(results)).index == 0
    await results.aclose()
    assert cancelled == [1]


async def test_the_number_at_once_is_asked_for_again() -> None:
    now, answers = 0.0, iter((1, 3))

    async def wanted() -> int:
        return next(answers)

    started: list[int] = []

    async def call(number: int) -> int:
        nonlocal now
        started.append(number)
        if len(started) < 2:
            now += ASK_AGAIN
        return number

    results = run_batch(call, iter(range(4)), concurrency=wanted, clock=lambda: now)
    await anext(results)
    assert started == [0]
    await anext(results)
    assert started == [0, 1, 2, 3]
