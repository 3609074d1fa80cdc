"""A long prompt arrives at servers that were just started, beside short streams.

The servers are cold: the agent does not know yet what steps cost. The streams have short prompts,
so all of them run when the long prompt arrives four seconds later, and they may end before it is
read. Both servers are asked through `/v1/completions`.
"""

import asyncio
import random
from collections.abc import Sequence
from statistics import median

from bench import prompts
from bench.client import Client
from bench.dialects import OPENAI, Request
from bench.figures import BETWEEN_TOKENS, FIRST_TOKEN, LONGEST_GAP, RequestsFailed, check
from bench.sample import Sample
from bench.stall import longest_gap

NUM_STREAMS = 7
STREAM_WORDS, STREAM_TOKENS = 16, 96
PROMPT_WORDS, PROMPT_TOKENS = 1200, 8
ARRIVES_AFTER = 4.0
"""Seconds after the streams."""


async def measure(client: Client, seed: int) -> dict[str, float]:
    """Raises `RequestsFailed`, also when all streams were over before the prompt arrived."""
    client = client.speaking(OPENAI)
    requests = prompts.uniform(seed, NUM_STREAMS, num_words=STREAM_WORDS, num_tokens=STREAM_TOKENS)
    prompt = Request(prompts.text(random.Random(f"newcomer {seed}"), PROMPT_WORDS), PROMPT_TOKENS)
    async with asyncio.TaskGroup() as group:
        streams = [group.create_task(client.ask(request)) for request in requests]
        await asyncio.sleep(ARRIVES_AFTER)
        newcomer = await client.ask(prompt)
    return figures([stream.result() for stream in streams], newcomer)


def figures(streams: Sequence[Sample], newcomer: Sample) -> dict[str, float]:
    """The longest gap of any stream during the newcomer's prefill, and its first token.

    Besides: the streams' median gap, and when the last of them was over.
    """
    check([*streams, newcomer])
    if all(stream.ended_at < newcomer.sent_at for stream in streams):
        raise RequestsFailed("the streams were over before the prompt arrived: too few tokens")
    first = newcomer.token_times[0]
    return {
        LONGEST_GAP: max(longest_gap(stream, newcomer.sent_at, first) for stream in streams),
        FIRST_TOKEN: newcomer.first_token,
        BETWEEN_TOKENS: median(gap for stream in streams for gap in stream.gaps),
        STREAMS_TOOK: max(stream.ended_at - stream.sent_at for stream in streams),
    }


STREAMS_TOOK = "streams took"
