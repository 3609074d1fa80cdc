"""One streamed request to any OpenAI-compatible server, timed; and what many of them amount to."""

import json
import time
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import aiohttp


@dataclass(frozen=True, slots=True)
class Timed:
    """One answer: seconds in all, to the first token, and from it to the last; or an `error`."""

    seconds: float
    first: float | None = None
    rest: float = 0.0
    tokens: int = 0
    error: str | None = None

    @property
    def between(self) -> float | None:
        """Mean seconds between two tokens (also called time per output token)."""
        return self.rest / (self.tokens - 1) if self.tokens > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What `concurrency` clients at once saw. Times in seconds; `None` where nothing came."""

    concurrency: int
    requests: int
    failed: int
    tokens_per_second: float
    first_p50: float | None
    first_p95: float | None
    between_p50: float | None
    between_p95: float | None
    problem: str | None = None


async def ask(
    session: aiohttp.ClientSession, url: str, body: dict[str, Any], headers: dict[str, str]
) -> Timed:
    """Stream one chat completion. HTTP errors and broken streams count as failures."""
    start = time.monotonic()
    first: float | None = None
    last = start
    num_chunks = tokens = 0
    try:
        async with session.post(url, json=body, headers=headers) as response:
            if response.status != 200:
                text = (await response.text())[:200]
                return Timed(time.monotonic() - start, error=f"{response.status}: {text}")
            async for line in response.content:
                data = line.removeprefix(b"data:").strip()
                if not line.startswith(b"data:") or data == b"[DONE]":
                    continue
                chunk = json.loads(data)
                tokens = max(tokens, (chunk.get("usage") or {}).get("completion_tokens") or 0)
                if "error" in chunk:
                    return Timed(time.monotonic() - start, error=str(chunk["error"])[:200])
                if _has_text(chunk):
                    last = time.monotonic()
                    first = last - start if first is None else first
                    num_chunks += 1
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return Timed(time.monotonic() - start, error=f"{type(error).__name__}: {error}")
    if first is None:
        return Timed(time.monotonic() - start, error="the answer has no text")
    return Timed(time.monotonic() - start, first, last - start - first, tokens or num_chunks)


def summed_up(concurrency: int, answers: list[Timed], seconds: float) -> Level:
    """The figures of one level, which took `seconds`."""
    good = [each for each in answers if each.error is None]
    firsts = [each.first for each in good if each.first is not None]
    between = [each.between for each in good if each.between is not None]
    return Level(
        concurrency=concurrency,
        requests=len(answers),
        failed=len(answers) - len(good),
        tokens_per_second=sum(each.tokens for each in good) / seconds if seconds else 0.0,
        first_p50=median(firsts) if firsts else None,
        first_p95=_p95(firsts),
        between_p50=median(between) if between else None,
        between_p95=_p95(between),
        problem=next((each.error for each in answers if each.error), None),
    )


def _p95(values: list[float]) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=20, method="inclusive")[-1]


def _has_text(chunk: dict[str, Any]) -> bool:
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        if any(
            delta.get(key) for key in ("content", "reasoning_content", "reasoning", "tool_calls")
        ):
            return True
    return False
