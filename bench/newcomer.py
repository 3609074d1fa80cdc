"""A long prompt arrives while streams run, or at servers that were just started: who waits?"""

import asyncio
import random
from collections.abc import Sequence
from statistics import median

from bench import prompts
from bench.client import Client
from bench.dialects import OPENAI, Request
from bench.figures import (
    BETWEEN_TOKENS,
    FIRST_TOKEN,
    LONGEST_GAP,
    RequestsFailed,
    check,
    longest_gap,
)
from bench.sample import Sample

NUM_STREAMS = 7
PROMPT_WORDS = 1200
STREAMS_TOOK = "streams took"

_UNDERWAY_AFTER = 8
"""Arrivals of each stream before the prompt is sent."""


async def beside_streams(client: Client, seed: int) -> dict[str, float]:
    """All streams run. Raises `RequestsFailed`, also if one was over before the prompt was read."""
    requests = prompts.uniform(seed, NUM_STREAMS, num_words=64, num_tokens=256)
    return figures(*await _asked(client, requests, _prompt(seed, num_tokens=16)))


async def at_cold_servers(client: Client, seed: int) -> dict[str, float]:
    """The servers know nothing of their own speed yet. Raises `RequestsFailed`.

    The streams have short prompts, and may end before the long one is read. All is asked through
    `/v1/completions`.
    """
    client = client.speaking(OPENAI)
    requests = prompts.uniform(seed, NUM_STREAMS, num_words=16, num_tokens=96)
    streams, newcomer = await _asked(client, requests, _prompt(seed, num_tokens=8))
    return {
        **figures(streams, newcomer, may_end=True),
        BETWEEN_TOKENS: median(gap for stream in streams for gap in stream.gaps),
        STREAMS_TOOK: max(stream.ended_at - stream.sent_at for stream in streams),
    }


async def _asked(
    client: Client, requests: Sequence[Request], prompt: Request
) -> tuple[list[Sample], Sample]:
    """Ask `requests`, and `prompt` once all of them are underway."""
    async with asyncio.TaskGroup() as group:
        streams = []
        started = [asyncio.Event() for _ in requests]
        for request, event in zip(requests, started, strict=True):
            asked = client.ask(request, underway=event, underway_after=_UNDERWAY_AFTER)
            streams.append(group.create_task(asked))
        for event in started:
            await event.wait()
        newcomer = await client.ask(prompt)
    return [stream.result() for stream in streams], newcomer


def _prompt(seed: int, *, num_tokens: int) -> Request:
    return Request(prompts.text(random.Random(f"newcomer {seed}"), PROMPT_WORDS), num_tokens)


def figures(
    streams: Sequence[Sample], newcomer: Sample, *, may_end: bool = False
) -> dict[str, float]:
    """The longest gap of any stream while the prompt was read, and the newcomer's first token.

    Raises `RequestsFailed`, also if a stream was over by then; if streams `may_end`, if all were
    over when the prompt came.
    """
    check([*streams, newcomer])
    first = newcomer.token_times[0]
    ends = [stream.token_times[-1] for stream in streams]
    if max(ends) < newcomer.sent_at if may_end else min(ends) < first:
        raise RequestsFailed("streams were over before the prompt was read: they need more tokens")
    gaps = (longest_gap(stream.token_times, newcomer.sent_at, first) for stream in streams)
    return {LONGEST_GAP: max(gaps), FIRST_TOKEN: newcomer.first_token}
