"""`make demo`, as a newcomer runs it."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from integration_tests.corpus import plain_cases
from integration_tests.daemons import MODEL, Daemon, Fleet

StartDemo = Callable[..., Awaitable[Daemon]]


@pytest.fixture
async def start_demo(fleet: Fleet) -> AsyncIterator[StartDemo]:
    """Starts a demo. One that a failed test leaves ends in order: its daemons are its own."""
    async with AsyncExitStack() as stack:

        async def start(*arguments: str) -> Daemon:
            demo = await fleet.start(sys.executable, "-m", "demo.run", *arguments)
            stack.push_async_callback(demo.terminate)
            return demo

        yield start


def demo_processes() -> list[str]:
    """Command lines of running agents that serve the demo model under the demo's names."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it ended while we looked
        if str(MODEL) in words and any(word.startswith("demo-") for word in words):
            found.append(" ".join(words))
    return found


async def test_once_answers_and_leaves_nothing_behind(start_demo: StartDemo) -> None:
    demo = await start_demo("--once")
    assert await demo.exit_code(60) == 0
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
    assert await demo.exit_code(60) == 0
    assert not demo_processes()


async def test_two_demos_at_once_take_different_ports(start_demo: StartDemo) -> None:
    first = await start_demo()
    await first.until_line(first.stdout, "Up until Ctrl-C")
    second = await start_demo("--once")
    assert await second.exit_code(60) == 0
    first.signal(signal.SIGTERM)
    assert await asyncio.wait_for(first.exit_code(60), 60) == 0
