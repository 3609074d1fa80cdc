"""A long prompt arrives while streams run: how long do they and it wait?"""

import asyncio
import random
from collections.abc import Sequence

from bench import prompts
from bench.client import Client
from bench.dialects import Request
from bench.figures import FIRST_TOKEN, LONGEST_GAP, RequestsFailed, check
from bench.sample import Sample

NUM_STREAMS = 7
STREAM_WORDS, STREAM_TOKENS = 64, 256
PROMPT_WORDS, PROMPT_TOKENS = 1200, 16
_UNDERWAY_AFTER = 8
"""Arrivals of each stream before the prompt is sent."""


async def measure(client: Client, seed: int) -> dict[str, float]:
    """Raises `RequestsFailed`, also when a stream was over before the newcomer's prefill."""
    requests = prompts.uniform(seed, NUM_STREAMS, num_words=STREAM_WORDS, num_tokens=STREAM_TOKENS)
    prompt = Request(prompts.text(random.Random(f"newcomer {seed}"), PROMPT_WORDS), PROMPT_TOKENS)
    async with asyncio.TaskGroup() as group:
        streams = []
        started = [asyncio.Event() for _ in requests]
        for request, event in zip(requests, started, strict=True):
            asked = client.ask(request, underway=event, underway_after=_UNDERWAY_AFTER)
            streams.append(group.create_task(asked))
        for event in started:
            await event.wait()
        newcomer = await client.ask(prompt)
    return figures([stream.result() for stream in streams], newcomer)


def figures(streams: Sequence[Sample], newcomer: Sample) -> dict[str, float]:
    """The longest gap of any stream during the newcomer's prefill, and its first token."""
    check([*streams, newcomer])
    first = newcomer.token_times[0]
    if any(stream.token_times[-1] < first for stream in streams):
        raise RequestsFailed(
            "a stream was over before the prefill of the newcomer: it needs more tokens"
        )
    gaps = (longest_gap(stream, newcomer.sent_at, first) for stream in streams)
    return {LONGEST_GAP: max(gaps), FIRST_TOKEN: newcomer.first_token}


def longest_gap(stream: Sample, since: float, until: float) -> float:
    """The longest gap that overlaps the time between `since` and `until`; 0 if none does."""
    ends = zip(stream.gaps, stream.token_times[1:], strict=True)
    return max((gap for gap, end in ends if end > since and end - gap <= until), default=0.0)
