"""`make demo`, as a newcomer runs it."""

import asyncio
import signal
import sys
from pathlib import Path

from integration_tests.corpus import plain_cases
from integration_tests.daemons import MODEL, Daemon, Fleet


async def start_demo(fleet: Fleet, *arguments: str) -> Daemon:
    return await fleet.start(sys.executable, "-m", "demo.run", *arguments)


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


async def test_once_answers_and_leaves_nothing_behind(fleet: Fleet) -> None:
    demo = await start_demo(fleet, "--once")
    assert await demo.exit_code(60) == 0
    text = "\n".join(demo.stdout)
    question = next(line for line in demo.stdout if line.startswith("> ")).removeprefix("> ")
    answer = next(
        case.answer for case in plain_cases() if case.body["messages"][0]["content"] == question
    )
    assert answer in text
    assert not demo_processes()


async def test_ctrl_c_drains_and_leaves_nothing_behind(fleet: Fleet) -> None:
    demo = await start_demo(fleet)
    await demo.until_line(demo.stdout, "Up until Ctrl-C")
    assert len(demo_processes()) == 2
    demo.signal(signal.SIGINT)
    assert await demo.exit_code(60) == 0
    assert not demo_processes()


async def test_two_demos_at_once_take_different_ports(fleet: Fleet) -> None:
    first = await start_demo(fleet)
    await first.until_line(first.stdout, "Up until Ctrl-C")
    second = await start_demo(fleet, "--once")
    assert await second.exit_code(60) == 0
    first.signal(signal.SIGTERM)
    assert await asyncio.wait_for(first.exit_code(60), 60) == 0
