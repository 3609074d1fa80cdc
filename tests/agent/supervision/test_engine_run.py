import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.decisions import EngineId
from arriero.agent.supervision.engine_run import CANNOT_START, EngineRun
from arriero.agent.supervision.restarts import Quit, Restarts
from arriero.agent.supervision.supervisor_protocol import (
    Begin,
    Changed,
    Failed,
    Loaded,
    Ordered,
    Ready,
    Stop,
)
from arriero.shared.inference import AgentId
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import Assign, Assignment, Reload
from tests.agent.fakes import BYTES_INFO, Expected, ends_soon, soon
from tests.agent.supervision.fakes import FakeProcess

ID = EngineId(7)
REFUSED = Issue(code="adapter", message="no such file")
A = Assignment(name="a", source="file:///a.gguf")
BEGIN = Begin(agent_id=AgentId("x"), settings=AgentSettings(name="box"))
ABORTED = -signal.SIGABRT
LONG = 30.0


class Host:
    """A run over fake processes, and all that its watcher is told."""

    def __init__(self, *, pause: float = 0.001, grace: float = LONG) -> None:
        self.started: asyncio.Queue[FakeProcess] = Expected()
        self.told: asyncio.Queue[tuple[object, ...]] = Expected()
        self.failures: list[OSError] = []
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.run = EngineRun(
            ID,
            lambda: BEGIN,
            self,
            start=self._start,
            restarts=Restarts(first_pause=pause),
            grace=grace,
        )

    async def _start(self) -> FakeProcess:
        await self.may_start.wait()
        if self.failures:
            raise self.failures.pop()
        process = FakeProcess()
        self.started.put_nowait(process)
        return process

    @asynccontextmanager
    async def running(self) -> AsyncIterator["asyncio.Task[None]"]:
        task = asyncio.create_task(self.run.run())
        try:
            yield task
        finally:
            task.cancel()
            await ends_soon(task)

    async def process(self) -> FakeProcess:
        process = await self.started.get()
        assert await process.orders.get() == BEGIN
        return process

    async def loaded(self) -> FakeProcess:
        process = await self.process()
        process.report(Loaded(model=BYTES_INFO), Ready())
        assert await self.told.get() == ("loaded", ID, BYTES_INFO)
        assert await self.told.get() == ("joined", ID)
        return process

    def on_loaded(self, id: EngineId, loaded: Loaded) -> None:
        self.told.put_nowait(("loaded", id, loaded.model))

    def on_joined(self, id: EngineId) -> None:
        self.told.put_nowait(("joined", id))

    def on_ordered(self, order: Assign | Reload) -> None:
        self.told.put_nowait(("ordered", order))

    def on_changed(self, id: EngineId, assignment: Assignment, issue: Issue | None) -> None:
        self.told.put_nowait(("changed", id, assignment, issue))

    def on_issues(self) -> None:
        self.told.put_nowait(("issues", self.run.issues))

    def on_crashed(self, id: EngineId, code: int, reason: str | None) -> None:
        self.told.put_nowait(("crashed", id, code, reason))

    def on_ended(self, id: EngineId, quit: Quit, reason: str | None) -> None:
        self.told.put_nowait(("ended", id, quit, reason))


async def test_reports_are_told() -> None:
    host = Host()
    async with host.running() as task:
        process = await host.loaded()
        process.report(Ordered(order=Reload()), Changed(assignment=A, issue=REFUSED))
        assert await host.told.get() == ("ordered", Reload())
        assert await host.told.get() == ("changed", ID, A, REFUSED)
        process.exit(0)
        assert await host.told.get() == ("ended", ID, Quit(0), None)
        await soon(task)


async def test_starts_again_after_a_crash_and_forgets_it() -> None:
    host = Host()
    async with host.running():
        process = await host.loaded()
        process.report(Failed(reason="GGML_ASSERT"))
        process.exit(ABORTED)
        assert await host.told.get() == ("crashed", ID, ABORTED, "GGML_ASSERT")
        [issue] = host.run.issues
        assert "GGML_ASSERT" in issue.message
        await host.loaded()
        assert await host.told.get() == ("issues", ())


async def test_a_start_that_fails_is_the_end() -> None:
    host = Host()
    async with host.running():
        process = await host.process()
        process.report(Failed(reason="wrong tensor"))
        process.exit(1)
        assert await host.told.get() == ("ended", ID, Quit(1), "wrong tensor")


async def test_the_system_cannot_start_a_process(caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    host.failures.append(OSError("out of memory"))
    async with host.running():
        assert await host.told.get() == ("ended", ID, Quit(CANNOT_START), "out of memory")
    assert "cannot start a process: out of memory" in caplog.text


class TestRetire:
    async def test_finishes_first(self) -> None:
        host = Host()
        async with host.running():
            process = await host.loaded()
            host.run.retire(2.0, 2.0)
            assert await process.orders.get() == Stop(drain_timeout=2.0)
            process.exit(0)
            assert await host.told.get() == ("ended", ID, Quit(0), None)

    async def test_is_killed_when_it_takes_too_long(self, caplog: pytest.LogCaptureFixture) -> None:
        host = Host(grace=0.0)
        async with host.running():
            await host.loaded()
            host.run.retire(0.01, 0.01)
            assert await host.told.get() == ("ended", ID, Quit(0), None)
        assert "did not end in time; it is killed" in caplog.text

    async def test_ends_a_pause(self) -> None:
        host = Host(pause=LONG)
        async with host.running():
            (await host.loaded()).exit(ABORTED)
            assert (await host.told.get())[0] == "crashed"
            host.run.retire(None, LONG)
            assert await host.told.get() == ("ended", ID, Quit(0), None)

    async def test_a_crash_on_the_way_out_is_not_a_reason_to_start_again(self) -> None:
        host = Host()
        async with host.running():
            process = await host.loaded()
            host.run.retire(None, LONG)
            process.exit(ABORTED)
            _, _, quit, _ = await host.told.get()
            assert isinstance(quit, Quit)
            assert quit.code == 134
            assert quit.complaint is not None and "SIGABRT" in quit.complaint


class TestEnd:
    async def test_at_once(self) -> None:
        host = Host()
        async with host.running():
            await host.process()
            host.run.end()
            assert await host.told.get() == ("ended", ID, Quit(0), None)

    async def test_while_the_process_is_being_started(self) -> None:
        host = Host()
        host.may_start.clear()
        async with host.running():
            await asyncio.sleep(0)
            host.run.end()
            host.may_start.set()
            assert await host.told.get() == ("ended", ID, Quit(0), None)

    async def test_in_place_of_the_next_start(self) -> None:
        host = Host(pause=LONG)
        async with host.running():
            (await host.loaded()).exit(ABORTED)
            assert (await host.told.get())[0] == "crashed"
            host.run.end()
            assert await host.told.get() == ("ended", ID, Quit(0), None)


async def test_a_run_that_is_cancelled_ends_its_process() -> None:
    host = Host()
    async with host.running():
        process = await host.loaded()
    assert process.has_ended
