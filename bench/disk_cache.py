"""A long prompt's second turn after a restart of the agent: `python -m bench.disk_cache`.

An agent with `--cache-dir` computes a prompt of `--tokens` tokens, as coding agents send them, and
is killed once the prefix is on disk. It starts again, and the next turn comes: the same prompt, the
answer, and a new message. What counts is the time to the first token, as a ratio to that of the
first turn, which was computed; the second one is longer, so the ratio is not flattered. In between
the files leave the system's page cache, as if the host had started again. Each round has a prompt
and a folder of its own.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

from aiohttp import ClientTimeout

from arriero.agent.engine.prompt_store.blocks import BLOCK
from bench.arguments import at_least, model_file
from integration_tests.daemons import Daemon, Fleet, until

PATIENCE = ClientTimeout(total=None)
TOKENS = range(10, 250)
"""Ids that every model has."""

ANSWER, MESSAGE = 32, 200
"""Tokens of the answer, and of the message after it."""

LONGEST = 3600.0


async def turn(fleet: Fleet, ids: list[int]) -> tuple[float, dict[str, Any]]:
    """Seconds until the first token, and how the answer ended."""
    began, first = time.perf_counter(), 0.0
    body = {"prompt": ids, "temperature": 0, "ignore_eos": True, "max_tokens": ANSWER}
    url = f"{fleet.inference}/api/v1/generate"
    event: dict[str, Any] = {}
    async with fleet.http.post(url, json=body, timeout=PATIENCE) as response:
        async for line in response.content:
            event = json.loads(line)
            if event["event"] == "token" and not first:
                first = time.perf_counter() - began
    if event.get("event") != "done":
        raise SystemExit(f"bench: the answer ended with {event}")
    return first, event


def blocks(folder: Path) -> list[Path]:
    """The files that are on disk."""
    return list(folder.glob("*.block"))


async def until_written(folder: Path, num: int) -> float:
    """Seconds until that many blocks are on disk."""
    began = time.perf_counter()

    async def reached() -> bool:
        return len(blocks(folder)) >= num

    await until(reached, deadline=LONGEST)
    return time.perf_counter() - began


def forget(folder: Path) -> int:
    """Let the files leave the page cache; their size in bytes."""
    total = 0
    for path in blocks(folder):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            total += os.fstat(file.fileno()).st_size
    return total


async def round_of(arguments: argparse.Namespace, number: int) -> tuple[float, float]:
    """First token computed, and first token of the next turn after the restart."""
    draw = random.Random(f"disk {number}")
    prompt = draw.choices(TOKENS, k=arguments.tokens)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.folder)))
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(first_token_timeout=LONGEST)

        async def start() -> Daemon:
            return await fleet.start_agent(
                model=arguments.model,
                slots=1,
                context_size=arguments.tokens + 2048,
                threads=arguments.threads,
                cache_dir=folder,
            )

        agent = await start()
        computed, _ = await turn(fleet, prompt)
        num_blocks = (len(prompt) + ANSWER - 1) // BLOCK
        writing = await until_written(folder, num_blocks)
        agent.signal_all(signal.SIGKILL)
        await agent.exit_code()
        size = forget(folder)
        await start()
        following = [*prompt, *draw.choices(TOKENS, k=ANSWER + MESSAGE)]
        read, end = await turn(fleet, following)
        cached = end["usage"]["cached_tokens"]
        if cached < len(prompt) // BLOCK * BLOCK:
            raise SystemExit(f"bench: only {cached} tokens came from disk")
        print(
            f"round {number}: computed {computed:.2f} s, {size / 2**20:.0f} MiB written in "
            f"{writing:.2f} s after the end; after the restart {read:.2f} s with {cached} of "
            f"{len(following)} tokens cached; ratio {read / computed:.3f}",
            flush=True,
        )
    return computed, read


async def measure(arguments: argparse.Namespace) -> None:
    """Print first tokens, and their ratio round by round."""
    rounds = [await round_of(arguments, number) for number in range(arguments.rounds)]
    ratios = [read / computed for computed, read in rounds]
    print(
        f"{arguments.tokens} tokens: computed {median(one for one, _ in rounds):.2f} s, read "
        f"{median(one for _, one in rounds):.2f} s, ratio {median(ratios):.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.disk_cache")
    parser.add_argument("--model", type=model_file, default="q06")
    parser.add_argument("--tokens", type=at_least(2 * BLOCK), default=20_000)
    parser.add_argument("--threads", type=at_least(1), default=2)
    parser.add_argument("--rounds", type=at_least(1), default=3)
    parser.add_argument("--folder", type=Path, help="where the cache folders are made")
    asyncio.run(measure(parser.parse_args(sys.argv[1:])))


if __name__ == "__main__":
    main()
