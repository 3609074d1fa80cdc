"""Continuous and static batching: the ways of sending requests that are compared."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from bench.client import Client
from bench.dialects import Request
from bench.sample import Sample


async def continuous(client: Client, requests: Sequence[Request], *, size: int) -> list[Sample]:
    """Keeps `size` requests in flight: whenever one ends, the next is sent."""
    waiting = deque(requests)
    samples: list[Sample] = []

    async def work() -> None:
        while waiting:
            samples.append(await client.ask(waiting.popleft()))

    async with asyncio.TaskGroup() as workers:
        for _ in range(size):
            workers.create_task(work())
    return samples


async def static(client: Client, requests: Sequence[Request], *, size: int) -> list[Sample]:
    """Batches of `size` that start together; the next waits for the longest of them.

    A static batch answers when it ends, so that is when its clients have their first token, and
    there is no time between tokens to speak of.
    """
    samples: list[Sample] = []
    for first in range(0, len(requests), size):
        batch = await asyncio.gather(
            *(client.ask(request) for request in requests[first : first + size])
        )
        end = time.perf_counter()
        samples += [replace(sample, token_times=(end,), ended_at=end) for sample in batch]
    return samples
