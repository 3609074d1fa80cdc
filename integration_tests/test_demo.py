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


async def test_once_answers_and_leaves_nothing_behind(start_demo: StartDemo) -> None:
    demo = await start_demo("--once")
    assert await demo.exit_code() == 0
    text = "\n".join(demo.stdout)
    question = next(line for line in demo.stdout if line.startswith("> ")).removeprefix("> ")
    answer = next(
        case.answer for case in plain_cases() if case.body["messages"][0]["content"] == question
    )
    assert answer in text
    assert not demo_processes()


async def test_ctrl_c_drains_and_leaves_nothing_behind(start_demo: StartDemo) -> None:
    demo = await start_demo()
    await demo.until_line(demo.stdout, "Up until Ctrl-C")
    assert len(demo_processes()) == 2
    demo.signal(signal.SIGINT)
    assert await demo.exit_code() == 0
    assert not demo_processes()


async def test_two_demos_at_once_take_different_ports(start_demo: StartDemo) -> None:
    first = await start_demo()
    await first.until_line(first.stdout, "Up until Ctrl-C")
    second = await start_demo("--once")
    assert await second.exit_code() == 0
    first.signal(signal.SIGTERM)
    assert await first.exit_code() == 0
