import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import replace
from pathlib import Path

from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.engine_process import EXIT_ORPHANED
from arriero.agent.supervision.engine_run import COMMAND
from arriero.agent.supervision.supervisor_protocol import (
    ORDERS,
    REPORTS,
    Alive,
    Begin,
    Dial,
    Failed,
    Loaded,
    Logged,
    Order,
    Report,
    Stop,
)
from arriero.shared.inference import AgentId
from arriero.shared.messages import Issue
from arriero.shared.reports.log_lines import LogLine
from tests.agent.fakes import BYTES_INFO
from tests.waiting import HANGS

BEGIN = Begin(
    agent_id=AgentId("a1"), settings=AgentSettings(model=Path("/nowhere/m.gguf"), name="box")
)
MODEL = f"""
from arriero.shared.messages import ModelInfo
MODEL = {BYTES_INFO!r}
"""
OBEDIENT = f"""
import sys
from arriero.agent.supervision import engine_process
from arriero.agent.supervision.supervisor_protocol import Failed, Loaded
from arriero.shared import log
{MODEL}

async def serve(settings, shutdown, channel):
    channel.report(Loaded(model=MODEL))
    dial = await channel.dials.get()
    [issue] = dial.issues
    channel.report(Failed(reason=f"{{settings.name}} {{channel.begin.agent_id}} {{issue.message}}"))
    await shutdown.requested.wait()
    told = [line.text for line in log.recent() if line.at < 10]
    channel.report(Failed(reason=f"{{channel.drain_timeout}} {{told}}"))

sys.exit(engine_process.main(serve))
"""
STUCK = f"""
import sys, time
from arriero.agent.supervision import engine_process
from arriero.agent.supervision.supervisor_protocol import Loaded
{MODEL}

async def serve(settings, shutdown, channel):
    print("what a library prints", flush=True)
    channel.report(Loaded(model=MODEL))
    time.sleep(60)

sys.exit(engine_process.main(serve))
"""


class Engine:
    """The process, with the test as its supervisor."""

    def __init__(self, process: Process) -> None:
        assert process.stdin and process.stdout and process.stderr
        self.process = process
        self.orders, self.reports, self.log = process.stdin, process.stdout, process.stderr

    @classmethod
    async def start(cls, *command: str) -> "Engine":
        return cls(
            await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        )

    def say(self, order: Order) -> None:
        self.orders.write(ORDERS.encode(order))

    async def hear(self) -> Report:
        """The next one that is more than a sign of life."""
        while isinstance(report := await self.hear_any(), Alive):
            pass
        return report

    async def hear_any(self) -> Report:
        return REPORTS.decode(await self.reports.readline())

    async def end(self) -> tuple[int, str]:
        """Its exit code and its log, when it ends by itself."""
        log, _ = await asyncio.gather(self.log.read(), self.reports.read())
        code = await self.process.wait()
        self.orders.close()
        return code, log.decode()


async def test_does_as_it_is_told() -> None:
    engine = await Engine.start(sys.executable, "-c", OBEDIENT)
    engine.say(BEGIN)
    assert await engine.hear() == Loaded(model=BYTES_INFO)
    engine.say(Dial(issues=(Issue(code="c", message="crashed"),)))
    assert await engine.hear() == Failed(reason="box a1 crashed")
    line = LogLine(number=1, at=2.0, level="info", text="fetched")
    engine.say(Logged(lines=(line,)))
    engine.say(Stop(drain_timeout=1.5))
    engine.say(Stop(drain_timeout=1.5))
    assert await engine.hear() == Failed(reason="1.5 ['fetched']")
    code, log = await engine.end()
    assert code == 0
    assert log.count("stopping: the supervisor asks for it") == 1


async def test_it_says_again_and_again_that_it_lives() -> None:
    engine = await Engine.start(sys.executable, "-c", OBEDIENT)
    engine.say(replace(BEGIN, settings=AgentSettings(name="box", step_timeout=1.0)))
    assert await engine.hear() == Loaded(model=BYTES_INFO)
    assert [await engine.hear_any() for _ in range(3)] == [Alive()] * 3
    engine.say(Stop())
    engine.orders.close()
    await engine.process.wait()


async def test_says_why_it_cannot_go_on() -> None:
    engine = await Engine.start(*COMMAND)
    engine.say(BEGIN)
    failed = await engine.hear()
    assert isinstance(failed, Failed)
    assert "/nowhere/m.gguf" in failed.reason
    code, log = await engine.end()
    assert code == 1
    assert log.splitlines()[-1] == f"agent: {failed.reason}"


async def test_ends_at_once_without_a_supervisor_even_when_it_is_stuck() -> None:
    engine = await Engine.start(sys.executable, "-c", STUCK)
    engine.say(BEGIN)
    assert await engine.hear() == Loaded(model=BYTES_INFO)
    engine.orders.close()
    code, log = await asyncio.wait_for(engine.end(), HANGS)
    assert code == EXIT_ORPHANED
    assert log == "what a library prints\n"


async def test_ends_at_once_when_the_supervisor_went_before_it_began() -> None:
    engine = await Engine.start(sys.executable, "-c", OBEDIENT)
    engine.orders.close()
    assert await engine.end() == (EXIT_ORPHANED, "")


async def test_begins_with_begin() -> None:
    engine = await Engine.start(sys.executable, "-c", OBEDIENT)
    engine.say(Stop())
    code, log = await engine.end()
    assert code != 0
    assert "the first order must be `begin`, not `stop`" in log
