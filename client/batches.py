"""Runs many requests, with a bounded number at once."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from .answers import Answer
from .errors import ArrieroError

Q = TypeVar("Q")
A = TypeVar("A")

ASK_AGAIN = 5.0
"""Seconds after which the number of simultaneous requests is asked again: agents come and go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[A]):
    """The result of the request at `index`: an `answer` or an `error`."""

    index: int
    answer: A | None = None
    error: ArrieroError | None = None


BatchResult = Result[Answer]


async def run_batch(
    call: Callable[[Q], Awaitable[A]],
    requests: Iterable[Q],
    *,
    concurrency: Callable[[], Awaitable[int]],
    clock: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[Result[A], None]:
    """Yield results as they come. Leaving the iteration cancels the running requests."""
    waiting = enumerate(requests)
    running: set[asyncio.Task[Result[A]]] = set()
    at_once, asked_at = await concurrency(), clock()
    try:
        while True:
            if clock() - asked_at >= ASK_AGAIN:
                at_once, asked_at = await concurrency(), clock()
            for index, request in islice(waiting, max(0, at_once - len(running))):
                running.add(asyncio.create_task(_one(call, index, request)))
            if not running:
                return
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            running -= done
            for task in done:
                yield task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _one(call: Callable[[Q], Awaitable[A]], index: int, request: Q) -> Result[A]:
    try:
        return Result(index=index, answer=await call(request))
    except ArrieroError as error:
        return Result(index=index, error=error)
