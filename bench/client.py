"""A streaming client that notes when each token came; an error is a failure, never a sample."""

import json
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp


@dataclass
class Sample:
    """One request as its client saw it; times in seconds since it was sent."""

    num_tokens: int = 0
    first_token: float = 0.0
    total: float = 0.0
    gaps: list[float] = field(default_factory=list)
    failure: str | None = None


async def measure(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> Sample:
    """Sends `body` to the native door and reads the stream to its end."""
    sample = Sample()
    started = last = time.perf_counter()
    try:
        async with http.post(f"{url}/api/v1/generate", json=body) as response:
            if response.status != 200:
                sample.failure = f"{response.status} {await response.text()}"
                return sample
            async for line in response.content:
                now = time.perf_counter()
                if line.startswith(b'{"event":"token"'):
                    if sample.first_token:
                        sample.gaps.append(now - last)
                    else:
                        sample.first_token = now - started
                    last = now
                else:
                    _end(sample, json.loads(line))
    except aiohttp.ClientError as error:
        sample.failure = repr(error)
    sample.total = time.perf_counter() - started
    return sample


def _end(sample: Sample, event: dict[str, Any]) -> None:
    if event["event"] == "done":
        sample.num_tokens = event["usage"]["completion_tokens"]
    elif event["event"] == "error":
        sample.failure = event["error"]["code"]
