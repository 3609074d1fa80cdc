import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from arriero.agent.settings import AgentSettings
from arriero.agent.supervision import supervisor
from arriero.agent.supervision.restarts import Restarts
from arriero.agent.supervision.supervisor_protocol import (
    Begin,
    Failed,
    Loaded,
    Order,
    Ready,
    Report,
    Stop,
    Tell,
)
from arriero.shared.lifecycle import Shutdown, StartupError
from arriero.shared.messages import Hello, Reject, Status
from tests.agent.fakes import BYTES_INFO, FakeBalancer

ABORTED = -signal.SIGABRT
LONG = 30.0
"""A pause that no test waits for."""


class FakeProcess:
    """An engine process that says what the test makes it say."""

    def __init__(self) -> None:
        self.orders: asyncio.Queue[Order] = asyncio.Queue()
        self._reports: asyncio.Queue[Report | int] = asyncio.Queue()
        self._code = -signal.SIGKILL
        self.has_ended = False

    def say(self, order: Order) -> None:
        self.orders.put_nowait(order)

    async def reports(self) -> AsyncIterator[Report]:
        while not isinstance(report := await self._reports.get(), int):
            yield report
        self._code = report

    async def end(self) -> int:
        self.has_ended = True
        return self._code

    def report(self, *reports: Report) -> None:
        for report in reports:
            self._reports.put_nowait(report)

    def exit(self, code: int) -> None:
        self._reports.put_nowait(code)


class Agent:
    """The supervisor over fake processes; each one it starts waits in `started`."""

    def __init__(self, *balancers: FakeBalancer, pause: float = 0.001) -> None:
        urls = tuple(balancer.url for balancer in balancers)
        self.settings = AgentSettings(balancer=urls or ("ws://127.0.0.1:9",), name="box")
        self.shutdown = Shutdown()
        self.restarts = Restarts(first_pause=pause)
        self.started: asyncio.Queue[FakeProcess] = asyncio.Queue()
        self.failures: list[OSError] = []

    async def _start(self) -> FakeProcess:
        if self.failures:
            raise self.failures.pop()
        process = FakeProcess()
        self.started.put_nowait(process)
        return process

    async def run(self) -> int:
        return await supervisor.main(
            self.settings, self.shutdown, start=self._start, restarts=self.restarts
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[int]]:
        task = asyncio.create_task(self.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def process(self) -> FakeProcess:
        """The next process, that has got its first order."""
        process = await self.started.get()
        assert isinstance(await process.orders.get(), Begin)
        return process

    async def working(self) -> FakeProcess:
        """The next process, that has loaded its model and is let in by a balancer."""
        process = await self.process()
        process.report(Loaded(model=BYTES_INFO), Ready(model="m"))
        assert isinstance(await process.orders.get(), Tell)
        return process


async def test_the_first_order_has_it_all() -> None:
    agent = Agent()
    async with agent.running():
        process = await agent.started.get()
        begin = await process.orders.get()
        assert isinstance(begin, Begin)
        assert begin.settings == agent.settings
        process.report(Loaded(model=BYTES_INFO))
        assert await process.orders.get() == Tell()


async def test_ready_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    agent = Agent()
    async with agent.running() as task:
        process = await agent.working()
        process.report(Ready(model="m"))
        process.exit(ABORTED)
        (await agent.working()).exit(0)
        assert await task == 0
    assert capsys.readouterr().out == "ready agent name=box slots=4 model=m\n"


async def test_every_process_is_the_same_agent() -> None:
    agent = Agent()
    ids = set()
    async with agent.running():
        for _ in range(3):
            process = await agent.started.get()
            begin = await process.orders.get()
            assert isinstance(begin, Begin)
            ids.add(begin.agent_id)
            process.report(Loaded(model=BYTES_INFO))
            await process.orders.get()
            process.exit(ABORTED)
    assert len(ids) == 1


async def test_a_crash_is_logged_and_told_until_it_is_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = Agent()
    async with agent.running():
        (await agent.working()).exit(ABORTED)
        process = await agent.process()
        assert "was ended by SIGABRT; it starts again after a pause of" in caplog.text
        process.report(Loaded(model=BYTES_INFO))
        tell = await process.orders.get()
        assert isinstance(tell, Tell)
        assert [issue.code for issue in tell.issues] == ["engine_crashed"]
        assert "it was started again" in tell.issues[0].message
        assert await process.orders.get() == Tell()


async def test_last_words_are_part_of_the_issue() -> None:
    async with FakeBalancer.open() as balancer:
        agent = Agent(balancer, pause=LONG)
        async with agent.running():
            process = await agent.working()
            process.report(Failed(reason="GGML_ASSERT(x) failed"))
            process.exit(ABORTED)
            status = await (await balancer.peer()).next()
            assert isinstance(status, Status)
            assert "SIGABRT: GGML_ASSERT(x) failed" in status.issues[0].message


class TestStandingIn:
    async def test_without_slots_until_the_next_process_has_loaded(self) -> None:
        async with FakeBalancer.open() as balancer:
            agent = Agent(balancer)
            async with agent.running():
                process = await agent.started.get()
                begin = await process.orders.get()
                assert isinstance(begin, Begin)
                process.report(Loaded(model=BYTES_INFO), Ready(model="m"))
                process.exit(ABORTED)

                peer = await balancer.peers.get()
                hello = await peer.next()
                assert isinstance(hello, Hello)
                assert (hello.slots, hello.model, hello.name) == (0, None, "box")
                assert (hello.agent_id, hello.loading) == (begin.agent_id, BYTES_INFO)

                process = await agent.process()
                process.report(Loaded(model=BYTES_INFO))
                assert isinstance(await process.orders.get(), Tell)
                # The order to dial comes when the stand-in has left.
                await asyncio.wait_for(peer.socket.wait_closed(), 5)

    async def test_another_failure_changes_what_it_shows(self) -> None:
        async with FakeBalancer.open() as balancer:
            agent = Agent(balancer)
            async with agent.running():
                (await agent.working()).exit(ABORTED)
                process = await agent.process()
                peer = await balancer.peer()
                status = await peer.next()
                assert isinstance(status, Status) and "SIGABRT" in status.issues[0].message
                process.report(Failed(reason="m.gguf is not there"))
                process.exit(1)
                status = await peer.next()
                assert isinstance(status, Status)
                assert "exit code 1: m.gguf is not there (2 times" in status.issues[0].message

    async def test_a_balancer_that_will_not_have_it_ends_it(self) -> None:
        async with FakeBalancer.open() as balancer:
            agent = Agent(balancer, pause=LONG)
            async with agent.running() as task:
                (await agent.working()).exit(ABORTED)
                peer = await balancer.peers.get()
                await peer.next()
                await peer.say(Reject(reason="too old", retry=False))
                with pytest.raises(ExceptionGroup) as caught:
                    await task
        [error] = caught.value.exceptions
        assert isinstance(error, StartupError)
        assert "too old" in str(error)


class TestTheEnd:
    @pytest.mark.parametrize("code", [0, 1, 2, 70])
    async def test_a_start_that_fails_is_the_end(self, code: int) -> None:
        agent = Agent()
        async with agent.running() as task:
            (await agent.process()).exit(code)
            assert await task == code

    async def test_a_stop_is_passed_on_once(self) -> None:
        agent = Agent()
        async with agent.running() as task:
            process = await agent.working()
            agent.shutdown.request("SIGTERM")
            agent.shutdown.request("SIGINT")
            assert await process.orders.get() == Stop()
            process.exit(0)
            assert await task == 0
            assert process.orders.empty()
            assert process.has_ended

    async def test_a_stop_ends_a_pause(self) -> None:
        async with FakeBalancer.open() as balancer:
            agent = Agent(balancer, pause=LONG)
            async with agent.running() as task:
                (await agent.working()).exit(ABORTED)
                await balancer.peer()
                agent.shutdown.request("SIGTERM")
                assert await task == 0

    async def test_a_crash_after_a_stop(self, caplog: pytest.LogCaptureFixture) -> None:
        agent = Agent()
        async with agent.running() as task:
            process = await agent.working()
            agent.shutdown.request("SIGTERM")
            process.exit(ABORTED)
            assert await task == 134
        assert "while stopping, the engine process was ended by SIGABRT" in caplog.text

    async def test_a_supervisor_that_fails_ends_the_process(self) -> None:
        agent = Agent()
        async with agent.running():
            process = await agent.working()
        assert process.has_ended


class TestNoProcess:
    async def test_at_first(self, caplog: pytest.LogCaptureFixture) -> None:
        agent = Agent()
        agent.failures.append(OSError("out of memory"))
        assert await agent.run() == supervisor.CANNOT_START
        assert "cannot start a process: out of memory" in caplog.text

    async def test_after_a_crash(self) -> None:
        agent = Agent()
        async with agent.running():
            process = await agent.working()
            agent.failures.append(OSError("out of memory"))
            process.exit(-signal.SIGKILL)
            await agent.process()
