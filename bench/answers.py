"""Requests of the native API that a benchmark sends one at a time, and what came when."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientTimeout

from bench.figures import RequestsFailed
from integration_tests.daemons import Fleet

PATIENCE = ClientTimeout(total=None)
PATIENT: dict[str, Any] = {"buffered_request_timeout": 600, "first_token_timeout": 600}
"""Settings of a balancer whose clients wait for long."""


@dataclass(slots=True)
class Answer:
    """When the request was sent and when its tokens came, in seconds; and the last event.

    `is_under_way` is set when `under_way_after` tokens have come.
    """

    sent_at: float = field(default_factory=time.perf_counter)
    times: list[float] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    under_way_after: int = 2
    is_under_way: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def first_token(self) -> float:
        """Seconds from the request to the first token."""
        return self.times[0] - self.sent_at

    @property
    def usage(self) -> dict[str, int]:
        """The counts at the end."""
        usage: dict[str, int] = self.end["usage"]
        return usage


async def generate(fleet: Fleet, body: dict[str, Any], answer: Answer | None = None) -> Answer:
    """Sends a request; `answer` is filled while it is answered. Raises `RequestsFailed`."""
    answer = answer or Answer()
    url = f"{fleet.inference}/api/v1/generate"
    async with fleet.http.post(url, json=body, timeout=PATIENCE) as response:
        async for line in response.content:
            answer.end = json.loads(line)
            if answer.end.get("event") == "token":
                answer.times.append(time.perf_counter())
                if len(answer.times) == answer.under_way_after:
                    answer.is_under_way.set()
    is_whole = "usage" in answer.end if body.get("stream") is False else _is_done(answer)
    if response.status != 200 or not is_whole:
        raise RequestsFailed(f"{response.status}: {answer.end}")
    return answer


def _is_done(answer: Answer) -> bool:
    return answer.end.get("event") == "done" and bool(answer.times)
