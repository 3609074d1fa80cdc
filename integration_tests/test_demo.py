"""`make demo`, as a newcomer runs it."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from demo.run import PREFERRED_PORTS, Demo, run
from integration_tests.corpus import plain_cases
from integration_tests.daemons import DEADLINE, MODEL, Daemon, Fleet

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


@contextmanager
def taken(*ports: int) -> Iterator[None]:
    """Nobody else gets these ports meanwhile."""
    with ExitStack() as stack:
        for port in ports:
            holder = stack.enter_context(socket.socket())
            with suppress(OSError):  # somebody has it
                holder.bind(("127.0.0.1", port))
        yield


def answer_in(output: str) -> bool:
    """Whether the question's right answer stands there."""
    question = next(line for line in output.splitlines() if line.startswith("> "))
    [answer] = {
        case.answer
        for case in plain_cases()
        if case.body["messages"][0]["content"] == question.removeprefix("> ")
    }
    return answer in output


async def test_beside_another_it_answers_and_ends_in_order(start_demo: StartDemo) -> None:
    """It stays up until Ctrl-C, on other ports than the usual ones."""
    with taken(*PREFERRED_PORTS.values()):
        demo = await start_demo()
        await demo.until_line(demo.stdout, "Up until Ctrl-C")
    said = "\n".join(demo.stdout)
    assert answer_in(said)
    assert "Something else has port 8061 and port 8060" in said
    assert len(set(demo_processes())) == 2
    demo.signal(signal.SIGINT)
    assert await demo.exit_code() == 0
    assert not demo_processes()


class Started(Demo):
    """A demo whose daemons run already."""

    async def start(self) -> None:
        pass


@pytest.mark.asyncio(loop_scope="session")
async def test_once_is_over_after_the_answer(
    shared_fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = Started(tmp_path)
    demo.inference, demo.management = shared_fleet.inference, shared_fleet.management
    async with asyncio.timeout(DEADLINE):
        await run(demo, once=True)
    assert answer_in(capsys.readouterr().out)
