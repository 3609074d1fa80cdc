"""The supervisor over processes that say what the test wants, and balancers that listen."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from arriero.agent.settings import AgentSettings
from arriero.agent.supervision import supervisor
from arriero.agent.supervision.engine_run import CANNOT_START
from arriero.agent.supervision.restarts import Restarts
from arriero.agent.supervision.supervisor_protocol import (
    Begin,
    Change,
    Changed,
    Dial,
    Failed,
    FitFound,
    Loaded,
    Logged,
    Ordered,
    Ready,
    ReportStatus,
    Stop,
)
from arriero.shared.inference import RequestId
from arriero.shared.lifecycle import Shutdown, StartupError
from arriero.shared.messages import (
    OLDEST_PROTOCOL,
    PROTOCOL_VERSION,
    FitRead,
    Hello,
    Issue,
    ReadFit,
    Reject,
    Status,
)
from arriero.shared.models.assignments import (
    Assign,
    Assignment,
    DesiredAdapter,
    Download,
    HostFacts,
    Reload,
    Work,
)
from arriero.shared.reports.log_tail import LogTail
from arriero.shared.reports.model_info import ModelInfo
from arriero.shared.reports.statistics import DeviceMemory
from tests.agent.fakes import BYTES_INFO, WELCOME, Expected, FakeBalancer, Peer, ends_soon, soon
from tests.agent.supervision.fakes import FakeFiles, FakeProcess

ABORTED = -signal.SIGABRT
LONG = 30.0
"""A pause that no test waits for."""
A = Assignment(name="a", source="file:///a.gguf")
B = Assignment(name="b", source="file:///b.gguf", slots=2)


class Agent:
    """The supervisor over fake processes; each one it starts waits in `started`."""

    def __init__(
        self,
        *balancers: FakeBalancer,
        pause: float = 0.001,
        is_pinned: bool = True,
        memory: int = 0,
        models_max: int = 1,
        **settings: int,
    ) -> None:
        urls = tuple(balancer.url for balancer in balancers)
        model = Path("m.gguf") if is_pinned else None
        self.settings = AgentSettings(
            balancer=urls or ("ws://127.0.0.1:9",),
            name="box",
            model=model,
            models_max=models_max,
            **settings,  # type: ignore[arg-type]
        )
        self.facts = HostFacts(is_pinned=is_pinned, memory=memory)
        self.files = FakeFiles()
        self.issues: tuple[Issue, ...] = ()
        self.shutdown = Shutdown()
        self.pause = pause
        self.started: asyncio.Queue[FakeProcess] = Expected()
        self.failures: list[OSError] = []
        self.measured: asyncio.Queue[tuple[DeviceMemory, ...]] = asyncio.Queue()

    async def _start(self) -> FakeProcess:
        if self.failures:
            raise self.failures.pop()
        process = FakeProcess()
        self.started.put_nowait(process)
        return process

    async def run(self) -> int:
        return await supervisor.main(
            self.settings,
            self.shutdown,
            facts=self.facts,
            files=self.files,
            issues=self.issues,
            start=self._start,
            make_restarts=lambda: Restarts(first_pause=self.pause),
            measure=self.measured.get,
            measure_interval=0.01,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[int]]:
        task = asyncio.create_task(self.run())
        try:
            yield task
        finally:
            task.cancel()
            await ends_soon(task)

    async def begun(self) -> tuple[FakeProcess, Begin]:
        """The next process, and its first order."""
        process = await self.started.get()
        begin = await process.orders.get()
        assert isinstance(begin, Begin)
        return process, begin

    async def process(self) -> FakeProcess:
        """The next process, that has got its first order."""
        return (await self.begun())[0]

    async def working(self) -> FakeProcess:
        """The next process, that has loaded its model and is let in by a balancer."""
        process = await self.process()
        process.report(Loaded(model=BYTES_INFO), Ready())
        assert isinstance(await process.orders.get(), Dial)
        return process


async def test_the_first_order_has_it_all() -> None:
    agent = Agent()
    async with agent.running():
        process = await agent.started.get()
        begin = await process.orders.get()
        assert isinstance(begin, Begin)
        assert begin.settings == agent.settings
        assert begin.facts == agent.facts
        process.report(Loaded(model=BYTES_INFO))
        assert await process.orders.get() == Dial()


async def test_an_issue_of_the_host_is_told_all_along() -> None:
    agent = Agent()
    agent.issues = (Issue(code="backend_unusable", message="its driver is away"),)
    async with agent.running():
        process = await agent.process()
        process.report(Loaded(model=BYTES_INFO))
        assert await process.orders.get() == Dial(issues=agent.issues)
        process.exit(ABORTED)
        process = await agent.process()
        process.report(Loaded(model=BYTES_INFO))
        dial = await process.orders.get()
        assert isinstance(dial, Dial)
        assert [issue.code for issue in dial.issues] == ["backend_unusable", "engine_crashed"]


async def test_what_it_logs_later_is_passed_on() -> None:
    tail = LogTail(logging.LogRecord.getMessage)
    logging.getLogger().addHandler(tail)
    try:
        agent = Agent()
        async with agent.running():
            process = await agent.process()
            logging.getLogger("arriero.agent.supervision").warning("the disk is full")
            logged = await process.orders.get()
            assert isinstance(logged, Logged)
            assert "the disk is full" in [line.text for line in logged.lines]
    finally:
        logging.getLogger().removeHandler(tail)


async def test_ready_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    agent = Agent()
    async with agent.running() as task:
        process = await agent.working()
        process.exit(ABORTED)
        (await agent.working()).exit(0)
        assert await soon(task) == 0
    assert capsys.readouterr().out == "ready agent name=box slots=4 model=bytes\n"


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
        dial = await process.orders.get()
        assert isinstance(dial, Dial)
        assert [issue.code for issue in dial.issues] == ["engine_crashed"]
        assert "it was started again" in dial.issues[0].message
        process.report(Ready())
        assert await process.orders.get() == ReportStatus()


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
    async def test_without_slots_until_the_next_process_has_joined(self) -> None:
        async with FakeBalancer.open() as balancer:
            agent = Agent(balancer)
            async with agent.running():
                process = await agent.started.get()
                begin = await process.orders.get()
                assert isinstance(begin, Begin)
                process.report(Loaded(model=BYTES_INFO), Ready())
                process.exit(ABORTED)

                peer = await balancer.peers.get()
                hello = await peer.next()
                assert isinstance(hello, Hello)
                assert (hello.slots, hello.model, hello.name) == (0, None, "box")
                assert (hello.agent_id, hello.loading) == (begin.agent_id, BYTES_INFO)

                await peer.say(WELCOME)
                assert isinstance(await peer.next(), Status)

                process = await agent.process()
                process.report(Loaded(model=BYTES_INFO))
                dial = await process.orders.get()
                assert isinstance(dial, Dial) and dial.takes_over
                process.report(Ready())
                await soon(peer.socket.wait_closed())

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
                for _ in range(OLDEST_PROTOCOL, PROTOCOL_VERSION + 1):
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
            assert await soon(task) == code

    async def test_a_stop_is_passed_on_once(self) -> None:
        agent = Agent()
        async with agent.running() as task:
            process = await agent.working()
            agent.shutdown.request("SIGTERM")
            agent.shutdown.request("SIGINT")
            assert await process.orders.get() == Stop()
            process.exit(0)
            assert await soon(task) == 0
            assert process.orders.empty()
            assert process.has_ended

    async def test_a_stop_ends_a_pause(self) -> None:
        async with FakeBalancer.open() as balancer:
            agent = Agent(balancer, pause=LONG)
            async with agent.running() as task:
                (await agent.working()).exit(ABORTED)
                await balancer.peer()
                agent.shutdown.request("SIGTERM")
                assert await soon(task) == 0

    async def test_a_crash_after_a_stop(self, caplog: pytest.LogCaptureFixture) -> None:
        agent = Agent()
        async with agent.running() as task:
            process = await agent.working()
            agent.shutdown.request("SIGTERM")
            process.exit(ABORTED)
            assert await soon(task) == 134
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
        assert await agent.run() == CANNOT_START
        assert "cannot start a process: out of memory" in caplog.text

    async def test_after_a_crash(self) -> None:
        agent = Agent()
        async with agent.running():
            process = await agent.working()
            agent.failures.append(OSError("out of memory"))
            process.exit(-signal.SIGKILL)
            await agent.process()


class Swap(Agent):
    """An agent that takes assignments, and the balancer's end of its links."""

    def __init__(self, balancer: FakeBalancer, memory: int = 0) -> None:
        super().__init__(balancer, is_pinned=False, memory=memory)
        self.balancer = balancer
        self.revision = 0
        self.loading: ModelInfo | None = None

    async def idle(self) -> Peer:
        """The stand-in's link, that was let in."""
        peer = await self.balancer.peers.get()
        hello = await peer.next()
        assert isinstance(hello, Hello)
        self.loading = hello.loading
        await peer.say(WELCOME)
        return peer

    async def assign(self, peer: Peer, assignment: Assignment | None) -> None:
        self.revision += 1
        await peer.say(Assign(revision=self.revision, assignment=assignment, drain_timeout=9.0))

    async def serving(self, assignment: Assignment) -> FakeProcess:
        """The first process, that serves `assignment` and has joined."""
        peer = await self.idle()
        await self.assign(peer, assignment)
        process = await self.working()
        await soon(peer.socket.wait_closed())
        return process

    def order(self, process: FakeProcess, assignment: Assignment | None) -> None:
        """Over the engine process's link."""
        self.revision += 1
        order = Assign(revision=self.revision, assignment=assignment, drain_timeout=9.0)
        process.report(Ordered(order=order))


async def work_of(peer: Peer, phase: str) -> Work:
    """The first work in `phase` that this link tells of."""
    while True:
        status = await peer.next()
        assert isinstance(status, Status)
        if status.work is not None and status.work.phase == phase:
            return status.work


@asynccontextmanager
async def swapping(memory: int = 0) -> AsyncIterator[Swap]:
    async with FakeBalancer.open() as balancer:
        agent = Swap(balancer, memory)
        async with agent.running():
            yield agent


class TestItsMemory:
    FULL = (DeviceMemory(name="CUDA0", kind="gpu", total=24, free=1),)

    async def test_is_told_while_there_is_no_engine(self) -> None:
        async with swapping() as agent:
            peer = await agent.idle()
            for devices in (self.FULL, (replace(self.FULL[0], free=20),)):
                agent.measured.put_nowait(devices)
                assert (await peer.statistics()).devices == devices

    async def test_is_not_known_any_more_once_there_is_one(self) -> None:
        async with swapping() as agent:
            peer = await agent.idle()
            agent.measured.put_nowait(self.FULL)
            await peer.statistics()
            await agent.assign(peer, A)
            await agent.process()
            assert (await peer.statistics()).devices == ()

    async def test_is_told_anew_where_it_dials_again(self) -> None:
        async with swapping() as agent:
            peer = await agent.idle()
            agent.measured.put_nowait(self.FULL)
            await peer.statistics()
            await peer.socket.close()
            again = await agent.idle()
            assert (await again.statistics()).devices == self.FULL


class TestAssignments:
    async def test_an_idle_agent_is_ready(self, capsys: pytest.CaptureFixture[str]) -> None:
        async with swapping() as agent:
            peer = await agent.balancer.peers.get()
            hello = await peer.next()
            assert isinstance(hello, Hello)
            assert (hello.slots, hello.model, hello.work) == (0, None, None)
            await peer.say(WELCOME)
            await agent.assign(peer, A)
            await agent.process()
        assert capsys.readouterr().out == 'ready agent name=box slots=0 model=""\n'

    async def test_it_gets_a_model(self) -> None:
        async with swapping() as agent:
            peer = await agent.idle()
            await agent.assign(peer, B)
            work = await work_of(peer, "loading")
            assert (work.revision, work.assignment) == (1, B)
            process, begin = await agent.begun()
            assert begin.assignment == B
            assert (begin.settings.model, begin.settings.slots) == (agent.files.path, 2)
            process.report(Loaded(model=BYTES_INFO))
            dial = await process.order()
            assert isinstance(dial, Dial) and dial.takes_over
            assert dial.work == replace(work, phase="serving")
            process.report(Ready())
            await soon(peer.socket.wait_closed())

    async def test_downloads_are_told_of(self) -> None:
        async with swapping() as agent:
            agent.files.may_go_on.clear()
            peer = await agent.idle()
            await agent.assign(peer, A)
            while (work := await work_of(peer, "fetching")).download is None:
                pass
            assert work.download == Download(file=A.source, bytes=1, total=2)
            await agent.assign(peer, B)
            assert (await work_of(peer, "fetching")).assignment == B
            assert agent.files.num_cancelled == 1

    async def test_a_file_that_is_not_there(self) -> None:
        async with swapping() as agent:
            agent.files.failures[A.source] = "not_found"
            peer = await agent.idle()
            await agent.assign(peer, A)
            while not isinstance(status := await peer.next(), Status) or not status.issues:
                pass
            [issue] = status.issues
            assert (issue.code, issue.hint) == ("not_found", "mend it")
            assert status.work is not None and status.work.phase == "failed"
            await agent.assign(peer, None)
            while not isinstance(status := await peer.next(), Status) or status.issues:
                pass

    async def test_a_change_without_a_reload(self) -> None:
        async with swapping() as agent:
            process = await agent.serving(A)
            new = replace(A, name="other")
            agent.order(process, new)
            assert await process.order() == Change(assignment=new)
            process.report(Changed(assignment=new))
            while not isinstance(tell := await process.orders.get(), ReportStatus) or (
                tell.work is None or tell.work.phase != "serving"
            ):
                pass
            # Its next process begins with it.
            process.exit(ABORTED)
            _, begin = await agent.begun()
            assert begin.assignment == new

    async def test_adapters_are_fetched_for_the_engine_that_runs(self) -> None:
        calm = DesiredAdapter(name="calm", source="file:///calm.gguf", scale=0.5)
        async with swapping() as agent:
            process = await agent.serving(A)
            new = replace(A, adapters=(calm,))
            agent.order(process, new)
            flags = (f"calm={agent.files.path}:0.5",)
            assert await process.order() == Change(assignment=new, adapter=flags)
            process.report(Changed(assignment=new))
            agent.order(process, A)
            assert await process.order() == Change(assignment=A)
            assert not agent.files.leases[calm.source].is_released, "it may be refused"
            process.report(Changed(assignment=A))
            agent.order(process, new)
            assert await process.order() == Change(assignment=new, adapter=flags)
            process.report(Changed(assignment=new))
            process.exit(ABORTED)
            _, begin = await agent.begun()
            assert (begin.assignment, begin.settings.adapter) == (new, flags)

    async def test_the_old_ends_first_where_memory_is_not_known(self) -> None:
        async with swapping() as agent:
            old = await agent.serving(A)
            agent.order(old, B)
            assert await old.order() == Stop(drain_timeout=9.0)
            peer = await agent.balancer.peers.get()
            hello = await peer.next()
            assert isinstance(hello, Hello) and hello.takes_over
            assert hello.work is not None and hello.work.phase == "draining"
            assert agent.started.empty()
            old.exit(0)
            _, begin = await agent.begun()
            assert begin.assignment == B
            assert agent.files.leases[A.source].is_released is False, "it may come back"

    async def test_the_old_goes_on_if_it_is_wished_for_again_before_it_has_ended(self) -> None:
        async with swapping() as agent:
            old = await agent.serving(A)
            agent.order(old, B)
            assert await old.order() == Stop(drain_timeout=9.0)
            peer = await agent.balancer.peer()
            await agent.assign(peer, A)
            dial = await old.order()
            assert isinstance(dial, Dial) and dial.takes_over
            assert dial.work is not None
            assert (dial.work.assignment, dial.work.phase) == (A, "serving")
            old.report(Ready())
            await soon(peer.socket.wait_closed())
            assert not old.has_ended and agent.started.empty()

    async def test_the_new_is_loaded_beside_the_old_where_memory_allows(self) -> None:
        async with swapping(memory=2**50) as agent:
            old = await agent.serving(A)
            agent.order(old, B)
            new, begin = await agent.begun()
            assert begin.assignment == B
            new.report(Loaded(model=BYTES_INFO))
            dial = await new.order()
            assert isinstance(dial, Dial) and dial.takes_over
            assert old.orders.empty() or isinstance(await old.orders.get(), ReportStatus)
            new.report(Ready())
            assert await old.order() == Stop(drain_timeout=9.0)
            assert agent.balancer.peers.empty(), "nobody stands in"
            old.exit(0)

    async def test_a_model_that_this_host_cannot_hold(self) -> None:
        async with swapping(memory=2**20) as agent:
            peer = await agent.idle()
            await agent.assign(peer, A)
            while not isinstance(status := await peer.next(), Status) or not status.issues:
                pass
            assert status.issues[0].code == "too_large"
            assert status.work is not None and status.work.phase == "failed"

    async def test_a_load_that_fails_goes_back(self) -> None:
        async with swapping() as agent:
            old = await agent.serving(A)
            agent.order(old, B)
            await old.order()
            peer = await agent.idle()
            old.exit(0)
            new = await agent.process()
            new.report(Failed(reason="wrong tensor"))
            new.exit(1)
            assert (await work_of(peer, "failed")).assignment == B
            back, begin = await agent.begun()
            assert begin.assignment == A
            back.report(Loaded(model=BYTES_INFO))
            dial = await back.order()
            assert isinstance(dial, Dial)
            assert [issue.message for issue in dial.issues] == ["wrong tensor"]
            assert agent.files.leases[B.source].is_released

    async def test_a_newer_wish_kills_a_load(self) -> None:
        async with swapping() as agent:
            peer = await agent.idle()
            await agent.assign(peer, A)
            process = await agent.process()
            await agent.assign(peer, B)
            _, begin = await agent.begun()
            assert begin.assignment == B
            assert process.has_ended

    async def test_nothing_is_wished_for_any_more(self) -> None:
        async with swapping() as agent:
            process = await agent.serving(A)
            agent.order(process, None)
            assert await process.order() == Stop(drain_timeout=9.0)
            peer = await agent.idle()
            assert agent.loading is None, "requests for what ran would wait for nothing"
            process.exit(0)
            assert (await work_of(peer, "waiting")).assignment is None
            assert agent.files.leases[A.source].is_released

    async def test_options_that_do_not_go_together(self) -> None:
        async with swapping() as agent:
            peer = await agent.idle()
            engine = replace(A.engine, kv_cells=16)
            await agent.assign(peer, replace(A, context_size=64, engine=engine))
            while not isinstance(status := await peer.next(), Status) or not status.issues:
                pass
            assert status.issues[0].code == "invalid_options"
            assert "`kv_cells`" in status.issues[0].message

    async def test_a_stop_ends_an_idle_agent(self) -> None:
        async with FakeBalancer.open() as balancer:
            agent = Swap(balancer)
            async with agent.running() as task:
                peer = await agent.idle()
                agent.shutdown.request("SIGTERM")
                assert await soon(task) == 0
                await soon(peer.socket.wait_closed())


async def test_a_pinned_agent_keeps_its_model(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent()
    async with agent.running():
        process = await agent.working()
        process.report(Ordered(order=Assign(revision=1, assignment=B)))
        process.report(Ready())
        process.exit(ABORTED)
        _, begin = await agent.begun()
        assert begin.settings.model == Path("m.gguf")
    assert "`assign` ignored" in caplog.text


async def test_a_pinned_agent_reloads_its_model() -> None:
    async with FakeBalancer.open() as balancer:
        agent = Agent(balancer)
        async with agent.running():
            process = await agent.working()
            process.report(Ordered(order=Reload(drain_timeout=3.0)))
            assert await process.orders.get() == Stop(drain_timeout=3.0)
            peer = await balancer.peers.get()
            hello = await peer.next()
            assert isinstance(hello, Hello)
            assert (hello.slots, hello.takes_over, hello.loading) == (0, True, BYTES_INFO)
            await peer.say(WELCOME)
            process.exit(0)
            anew, begin = await agent.begun()
            assert begin.settings.model == Path("m.gguf")
            anew.report(Loaded(model=BYTES_INFO), Ready())
            await soon(peer.socket.wait_closed())


class TestFits:
    QUESTION = ReadFit(id=RequestId("f"), source="http://files.example/m.gguf")
    """Refused without a look at any file."""

    async def test_the_supervisor_answers_what_its_own_link_is_asked(self) -> None:
        async with swapping() as agent:
            peer = await agent.idle()
            await peer.say(self.QUESTION)
            while not isinstance(read := await soon(peer.next()), FitRead):
                pass
        assert read.issue is not None
        assert (read.id, read.issue.code) == ("f", "denied")

    async def test_and_what_the_link_of_an_engine_process_is_asked(self) -> None:
        async with swapping() as agent:
            process = await agent.serving(A)
            process.report(Ordered(order=self.QUESTION))
            found = await soon(process.order())
        assert isinstance(found, FitFound)
        assert found.read.issue is not None
        assert (found.read.id, found.read.issue.code) == ("f", "denied")
