"""`make demo`, as a newcomer runs it."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from integration_tests.corpus import plain_cases
from integration_tests.daemons import MODEL, Daemon, Fleet

STARTED_BY = "ARRIERO_TEST_STARTED_BY"
"""A variable of the environment by which a test knows its own processes."""

StartDemo = Callable[..., Awaitable[Daemon]]


@pytest.fixture
async def start_demo(fleet: Fleet) -> AsyncIterator[StartDemo]:
    """Starts a demo. One that a failed test leaves ends in order: its daemons are its own."""
    mark = {STARTED_BY: str(os.getpid())}
    async with AsyncExitStack() as stack:

        async def start(*arguments: str) -> Daemon:
            demo = await fleet.start(sys.executable, "-m", "demo.run", *arguments, env=mark)
            stack.push_async_callback(demo.terminate)
            return demo

        yield start


def demo_processes() -> list[str]:
    """Command lines of running agents that demos of this process have started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environ = (folder / "environ").read_bytes().split(b"\0")
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it ended while we looked, or belongs to somebody else
        is_ours = f"{STARTED_BY}={os.getpid()}".encode() in environ
        if is_ours and str(MODEL) in words and any(word.startswith("demo-") for word in words):
            found.append(" ".join(words))
    return found


async def test_two_demos_at_once_each_end_in_order(start_demo: StartDemo) -> None:
    """One stays up until Ctrl-C, the other answers once, on other ports."""
    lasting = await start_demo()
    await lasting.until_line(lasting.stdout, "Up until Ctrl-C")
    its_own = set(demo_processes())
    assert len(its_own) == 2
    once = await start_demo("--once")
    assert await once.exit_code() == 0
    question = next(line for line in once.stdout if line.startswith("> ")).removeprefix("> ")
    answer = next(
        case.answer for case in plain_cases() if case.body["messages"][0]["content"] == question
    )
    assert answer in "\n".join(once.stdout)
    assert set(demo_processes()) == its_own
    lasting.signal(signal.SIGINT)
    assert await lasting.exit_code() == 0
    assert not demo_processes()
