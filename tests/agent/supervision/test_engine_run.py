import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.decisions import EngineId
from arriero.agent.supervision.engine_run import CANNOT_START, EngineChild, EngineRun, start_engine
from arriero.agent.supervision.restarts import Quit, Restarts
from arriero.agent.supervision.supervisor_protocol import (
    REPORTS,
    Alive,
    Begin,
    Changed,
    Dial,
    Failed,
    Loaded,
    Ordered,
    Ready,
    Report,
    ReportStatus,
    Stop,
)
from arriero.shared.inference import AgentId
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import MAX_TEMPLATE, Assign, Assignment, Reload
from tests.agent.fakes import BYTES_INFO, Expected, ends_soon, soon
from tests.agent.supervision.fakes import FakeProcess
from tests.waiting import HANGS, given_time

LOADED = REPORTS.encode(Loaded(model=BYTES_INFO)).decode().strip()

ECHO = f"""
import sys
print({LOADED!r}, flush=True)
for line in sys.stdin:
    if '"stop"' in line:
        print('{{"type": "failed", "reason": "stopped"}}', flush=True)
sys.exit(7)
"""
GROUP = """
import os
if os.getpgid(0) == os.getpid():
    print('{"type": "failed", "reason": "a group of its own"}')
"""
CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGABRT)"


async def start(script: str) -> EngineChild:
    return await start_engine([sys.executable, "-c", script])


async def reports_of(child: EngineChild) -> list[Report]:
    return [report async for report in child.reports()]


async def test_orders_in_and_reports_out() -> None:
    child = await start(ECHO)
    reports = child.reports()
    assert await anext(reports) == Loaded(model=BYTES_INFO)
    child.say(ReportStatus())
    child.say(Stop())
    assert await anext(reports) == Failed(reason="stopped")
    assert await child.end() == 7


async def test_the_end_of_the_orders_ends_it() -> None:
    assert await asyncio.wait_for((await start(ECHO)).end(), HANGS) == 7


async def test_a_signal_ended_it() -> None:
    child = await start(CRASH)
    assert await reports_of(child) == []
    assert await child.end() == -signal.SIGABRT


async def test_an_order_that_comes_too_late_is_lost() -> None:
    child = await start(CRASH)
    assert await reports_of(child) == []
    child.say(Stop())
    assert await child.end() == -signal.SIGABRT


async def test_no_such_program() -> None:
    with pytest.raises(OSError, match="nowhere"):
        await start_engine(["/nowhere/python"])


async def test_ctrl_c_in_a_terminal_does_not_reach_it() -> None:
    child = await start(GROUP)
    assert await reports_of(child) == [Failed(reason="a group of its own")]
    await child.end()


async def test_a_report_may_hold_a_chat_template() -> None:
    assignment = Assignment(name="m", source="file:///m.gguf", chat_template="\x01" * MAX_TEMPLATE)
    report = Ordered(order=Assign(revision=1, assignment=assignment))
    line = REPORTS.encode(report).decode().strip()
    child = await start("import sys; print(sys.stdin.readline().strip())")
    child.write(line.encode() + b"\n")
    assert await reports_of(child) == [report]
    await child.end()


async def test_may_be_killed() -> None:
    child = await start(ECHO)
    child.kill()
    assert await child.end() == -signal.SIGKILL
    child.kill()  # there is nothing to kill


ID = EngineId(7)
REFUSED = Issue(code="adapter", message="no such file")
A = Assignment(name="a", source="file:///a.gguf")
BEGIN = Begin(agent_id=AgentId("x"), settings=AgentSettings(name="box"))
ABORTED = -signal.SIGABRT
LONG = 30.0


class Host:
    """A run over fake processes, and all that its watcher is told."""

    def __init__(
        self, *, pause: float = 0.001, grace: float = LONG, step_timeout: float = LONG
    ) -> None:
        self.begin = replace(BEGIN, settings=AgentSettings(name="box", step_timeout=step_timeout))
        self.started: asyncio.Queue[FakeProcess] = Expected()
        self.told: asyncio.Queue[tuple[object, ...]] = Expected()
        self.failures: list[OSError] = []
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.run = EngineRun(
            ID,
            lambda: self.begin,
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
        assert await process.orders.get() == self.begin
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


def code_of(told: tuple[object, ...]) -> str:
    what, issues = told
    assert what == "issues" and isinstance(issues, tuple)
    return "".join(issue.code for issue in issues)


async def test_an_engine_that_does_not_get_on_is_an_issue_and_is_ended() -> None:
    host = Host(step_timeout=40.0)
    async with given_time() as time, host.running():
        process = await host.loaded()
        process.report(Alive(step=3))
        await time.passes_until(lambda: not host.told.empty(), step=1.0)
        assert code_of(host.told.get_nowait()) == "engine_stalled"
        await time.passes_until(lambda: not host.told.empty(), step=1.0)
        reason = "no step of the engine ended within 40s"
        assert host.told.get_nowait() == ("crashed", ID, -signal.SIGKILL, reason)
        assert [issue.code for issue in host.run.issues] == ["engine_stalled"]
        assert not host.run.is_stalled, "there is none that could be"
        await time.passes(1.0)
        await host.process()


async def test_the_issue_goes_when_the_step_has_ended() -> None:
    host = Host(step_timeout=40.0)
    async with given_time() as time, host.running():
        process = await host.loaded()
        process.report(Alive(step=3))
        await time.passes_until(lambda: not host.told.empty(), step=1.0)
        assert code_of(host.told.get_nowait()) == "engine_stalled"
        assert host.run.is_stalled
        process.report(Alive(step=4))
        assert code_of(await host.told.get()) == ""
        assert not host.run.is_stalled


async def test_a_restart_ends_the_process_and_starts_the_next() -> None:
    host = Host(pause=LONG)
    async with host.running():
        process = await host.loaded()
        host.run.restart(3.0)
        host.run.restart(5.0)  # once is enough
        assert await process.orders.get() == Stop(drain_timeout=3.0)
        process.exit(0)
        anew = await host.loaded()
        assert process.orders.empty()
        assert host.run.issues == ()
        anew.exit(ABORTED)
        assert await host.told.get() == ("crashed", ID, ABORTED, None)


async def test_a_restart_cuts_a_pause_short() -> None:
    host = Host(pause=LONG)
    async with host.running():
        process = await host.loaded()
        process.exit(ABORTED)
        assert await host.told.get() == ("crashed", ID, ABORTED, None)
        host.run.restart(0.0)
        await host.loaded()


async def test_a_process_that_loads_is_not_restarted() -> None:
    host = Host()
    async with host.running():
        process = await host.process()
        host.run.restart(0.0)
        assert process.orders.empty()


async def test_a_restart_kills_a_process_that_does_not_end() -> None:
    host = Host(grace=0.0)
    async with host.running():
        process = await host.loaded()
        host.run.restart(0.0)
        await host.loaded()
        assert process.has_ended


async def test_a_stop_while_it_restarts_ends_it_for_good() -> None:
    host = Host()
    async with host.running() as task:
        process = await host.loaded()
        host.run.restart(LONG)
        host.run.retire(None, LONG)
        process.exit(0)
        assert await host.told.get() == ("ended", ID, Quit(0), None)
        await task
        assert host.started.empty()


async def test_loading_is_not_watched() -> None:
    host = Host(step_timeout=40.0)
    async with given_time() as time, host.running():
        process = await host.process()
        process.report(Alive())
        for _ in range(100):
            await time.passes(1.0)
        process.report(Loaded(model=BYTES_INFO))
        assert await host.told.get() == ("loaded", ID, BYTES_INFO)


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
        assert "did not end in time, so it is killed" in caplog.text

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


class TestRecall:
    async def test_it_goes_on_and_is_not_killed_any_more(self) -> None:
        host = Host(grace=0.0)
        async with host.running():
            process = await host.loaded()
            host.run.retire(LONG, LONG)
            await process.orders.get()
            host.run.recall(Dial(takes_over=True))
            assert await process.orders.get() == Dial(takes_over=True)
            process.exit(ABORTED)
            assert (await host.told.get())[0] == "crashed", "it is started again, as any"

    async def test_one_that_ends_before_it_hears_that(self) -> None:
        host = Host()
        async with host.running():
            process = await host.loaded()
            host.run.retire(None, LONG)
            host.run.recall(Dial())
            process.exit(0)
            assert await host.told.get() == ("ended", ID, Quit(0), None)

    async def test_one_that_was_killed_or_is_in_a_pause_stays_so(self) -> None:
        host = Host(pause=LONG)
        async with host.running():
            (await host.loaded()).exit(ABORTED)
            await host.told.get()
            host.run.retire(None, LONG)
            host.run.recall(Dial())
            assert await host.told.get() == ("ended", ID, Quit(0), None)


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
