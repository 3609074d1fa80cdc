"""The ways to serve the same requests that are compared, over one running fleet."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import aiohttp

from bench.client import Sample, measure

Requests = Sequence[dict[str, Any]]


async def continuous(
    http: aiohttp.ClientSession, url: str, requests: Requests, *, size: int
) -> list[Sample]:
    """Keeps `size` requests in flight: whenever one ends, the next is sent."""
    waiting = deque(requests)
    samples: list[Sample] = []

    async def worker() -> None:
        while waiting:
            samples.append(await measure(http, url, waiting.popleft()))

    await asyncio.gather(*(worker() for _ in range(size)))
    return samples


async def static(
    http: aiohttp.ClientSession, url: str, requests: Requests, *, size: int
) -> list[Sample]:
    """Batches of `size` that start together; the next waits for the longest of them.

    A static batch answers when it ends, so that is when its clients have their first token, and
    there is no time between tokens to speak of.
    """
    samples: list[Sample] = []
    for first in range(0, len(requests), size):
        started = time.perf_counter()
        batch = await asyncio.gather(
            *(measure(http, url, body) for body in requests[first : first + size])
        )
        whole = time.perf_counter() - started
        for sample in batch:
            sample.first_token = sample.total = whole
            sample.gaps.clear()
        samples.extend(batch)
    return samples
