"""A long prompt's second turn after a restart of the agent: `python -m bench.disk_cache`.

An agent with `--cache-dir` computes a prompt of `--tokens` tokens, as coding agents send them, and
is killed once the prefix is on disk. It starts again, and the next turn comes: the same prompt, the
answer, and a new message. What counts is the time to the first token, as a ratio to that of the
first turn, which was computed; the second one is longer, so the ratio is not flattered. In between
the files leave the system's page cache, as if the host had started again. Each round has a prompt
and a folder of its own.
"""

import argparse
import os
import random
import signal
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from arriero.agent.engine.capacity import BLOCK
from bench.answers import Answer, generate
from bench.figures import RequestsFailed, spread
from bench.harness import Flags, at_least, finished, print_table, save
from integration_tests.daemons import Daemon, Fleet, until

TOKENS = range(10, 250)
"""Ids that every model has."""

ANSWER, MESSAGE = 32, 200
"""Tokens of the answer, and of the message after it."""

LONGEST = 3600.0
COMPUTED, WRITTEN, READ = "computed, s", "written after its end, s", "read after the restart, s"


async def turn(fleet: Fleet, ids: list[int]) -> Answer:
    """The answer to a prompt. Raises `RequestsFailed`."""
    body = {"prompt": ids, "temperature": 0, "ignore_eos": True, "max_tokens": ANSWER}
    return await generate(fleet, body)


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


async def round_of(given: argparse.Namespace, number: int) -> dict[str, float]:
    """The figures of one prompt. Raises `RequestsFailed`."""
    draw = random.Random(f"disk {number}")
    prompt = draw.choices(TOKENS, k=given.tokens)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=given.folder)))
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(first_token_timeout=LONGEST)

        async def start() -> Daemon:
            return await fleet.start_agent(
                model=given.model,
                slots=1,
                context_size=given.tokens + 2048,
                threads=given.threads,
                cache_dir=folder,
            )

        agent = await start()
        computed = (await turn(fleet, prompt)).first_token
        num_blocks = (len(prompt) + ANSWER - 1) // BLOCK
        writing = await until_written(folder, num_blocks)
        agent.signal_all(signal.SIGKILL)
        await agent.exit_code()
        size = forget(folder)
        await start()
        following = [*prompt, *draw.choices(TOKENS, k=ANSWER + MESSAGE)]
        answer = await turn(fleet, following)
        cached, read = answer.usage["cached_tokens"], answer.first_token
        if cached < len(prompt) // BLOCK * BLOCK:
            raise RequestsFailed(f"only {cached} tokens came from disk")
        return {
            COMPUTED: computed,
            WRITTEN: writing,
            "MiB": size / 2**20,
            READ: read,
            "ratio": read / computed,
        }


async def measure(given: argparse.Namespace) -> list[dict[str, float]]:
    """Raises `RequestsFailed`."""
    rounds = []
    for number in range(given.rounds):
        rounds.append(await round_of(given, number))
        print(f"round {number}: {rounds[-1]}", flush=True)
    return rounds


def main() -> None:
    flags = Flags("disk_cache", __doc__)
    flags.file("q06")
    flags.rounds(3)
    flags.threads(2)
    flags.add_argument("--tokens", type=at_least(2 * BLOCK), default=20_000, help="of the prompt")
    flags.add_argument("--folder", type=Path, help="where the cache folders are made")
    given = flags.parse_args()
    rounds = finished(measure(given))
    rows = ([name, spread([one[name] for one in rounds], "{:.3g}".format)] for name in rounds[0])
    print_table(f"{given.tokens} tokens", ("", "median (least to most)"), rows)
    save("disk_cache", {"given": vars(given), "rounds": rounds})


if __name__ == "__main__":
    main()
