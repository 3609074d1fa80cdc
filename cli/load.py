"""Times requests to any OpenAI-compatible server, and sums up many of them."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

import aiohttp


@dataclass(frozen=True, slots=True)
class Timed:
    """One answer: seconds in total, to the first token, and from first to last; or an `error`.

    An answer that is not streamed has no first token.
    """

    seconds: float
    first: float | None = None
    rest: float = 0.0
    tokens: int = 0
    error: str | None = None

    @property
    def between(self) -> float | None:
        """The mean seconds between two tokens (also called time per output token)."""
        if self.first is None or self.tokens < 2:
            return None
        return self.rest / (self.tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The figures of `concurrency` clients at once. Times in seconds; `None` if not measured.

    `total_…` is the time from a request to the end of its answer.
    """

    concurrency: int
    requests: int
    failed: int
    requests_per_second: float
    tokens_per_second: float
    first_p50: float | None
    first_p95: float | None
    between_p50: float | None
    between_p95: float | None
    total_p50: float | None
    total_p95: float | None
    total_p99: float | None
    problem: str | None = None


async def ask(
    session: aiohttp.ClientSession, url: str, body: dict[str, Any], headers: dict[str, str]
) -> Timed:
    """Request one chat completion. HTTP errors and broken streams count as failures.

    The answer is streamed if `body` says so.
    """
    start = time.monotonic()
    first: float | None = None
    last = start
    num_chunks = tokens = 0
    try:
        async with session.post(url, json=body, headers=headers) as response:
            if response.status != 200:
                text = _message(await response.text())
                return Timed(time.monotonic() - start, error=f"{response.status}: {text}")
            if not body.get("stream"):
                return _whole(await response.json(), time.monotonic() - start)
            async for line in response.content:
                data = line.removeprefix(b"data:").strip()
                if not line.startswith(b"data:") or data == b"[DONE]":
                    continue
                chunk = json.loads(data)
                tokens = max(tokens, (chunk.get("usage") or {}).get("completion_tokens") or 0)
                if "error" in chunk:
                    return Timed(time.monotonic() - start, error=_message(data.decode()))
                if _has_text(chunk):
                    last = time.monotonic()
                    first = last - start if first is None else first
                    num_chunks += 1
    except (aiohttp.ClientError, TimeoutError, ValueError, LookupError) as error:
        return Timed(time.monotonic() - start, error=f"{type(error).__name__}: {error}")
    if first is None:
        return Timed(time.monotonic() - start, error="the answer has no text")
    return Timed(time.monotonic() - start, first, last - start - first, tokens or num_chunks)


def _whole(answer: dict[str, Any], seconds: float) -> Timed:
    if not any(_has_text({"choices": [{"delta": each["message"]}]}) for each in answer["choices"]):
        return Timed(seconds, error="the answer has no text")
    return Timed(seconds, tokens=(answer.get("usage") or {}).get("completion_tokens") or 0)


def summed_up(concurrency: int, answers: list[Timed], seconds: float) -> Level:
    """Return the figures of one level, which took `seconds`."""
    good = [each for each in answers if each.error is None]
    firsts = [each.first for each in good if each.first is not None]
    between = [each.between for each in good if each.between is not None]
    totals = [each.seconds for each in good]
    return Level(
        concurrency=concurrency,
        requests=len(answers),
        failed=len(answers) - len(good),
        requests_per_second=len(good) / seconds if seconds else 0.0,
        tokens_per_second=sum(each.tokens for each in good) / seconds if seconds else 0.0,
        first_p50=_percentile(firsts, 50),
        first_p95=_percentile(firsts, 95),
        between_p50=_percentile(between, 50),
        between_p95=_percentile(between, 95),
        total_p50=_percentile(totals, 50),
        total_p95=_percentile(totals, 95),
        total_p99=_percentile(totals, 99),
        problem=next((each.error for each in answers if each.error), None),
    )


def _message(body: str) -> str:
    """Return the message in an error's JSON, or the body itself."""
    with suppress(ValueError, TypeError, KeyError):
        body = str(json.loads(body)["error"]["message"])
    return body[:200]


def _percentile(values: list[float], percent: int) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def _has_text(chunk: dict[str, Any]) -> bool:
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        if any(
            delta.get(key) for key in ("content", "reasoning_content", "reasoning", "tool_calls")
        ):
            return True
    return False
