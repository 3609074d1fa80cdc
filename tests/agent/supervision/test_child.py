import asyncio
import signal
import sys

import pytest

from arriero.agent.supervision.child import Child
from arriero.agent.supervision.supervisor_protocol import (
    Failed,
    Loaded,
    Ordered,
    Report,
    Stop,
    Tell,
    encode_report,
)
from arriero.shared.models.assignments import MAX_TEMPLATE, Assign, Assignment
from tests.agent.fakes import BYTES_INFO
from tests.waiting import HANGS

LOADED = encode_report(Loaded(model=BYTES_INFO)).decode().strip()

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


async def start(script: str) -> Child:
    return await Child.start([sys.executable, "-c", script])


async def reports_of(child: Child) -> list[Report]:
    return [report async for report in child.reports()]


async def test_orders_in_and_reports_out() -> None:
    child = await start(ECHO)
    reports = child.reports()
    assert await anext(reports) == Loaded(model=BYTES_INFO)
    child.say(Tell())
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
        await Child.start(["/nowhere/python"])


async def test_ctrl_c_in_a_terminal_does_not_reach_it() -> None:
    child = await start(GROUP)
    assert await reports_of(child) == [Failed(reason="a group of its own")]
    await child.end()


async def test_a_report_may_hold_a_chat_template() -> None:
    assignment = Assignment(name="m", source="file:///m.gguf", chat_template="\x01" * MAX_TEMPLATE)
    report = Ordered(order=Assign(revision=1, assignment=assignment))
    line = encode_report(report).decode().strip()
    child = await start("import sys; print(sys.stdin.readline().strip())")
    child._process.stdin.write(line.encode() + b"\n")  # type: ignore[union-attr]
    assert await reports_of(child) == [report]
    await child.end()


async def test_may_be_killed() -> None:
    child = await start(ECHO)
    child.kill()
    assert await child.end() == -signal.SIGKILL
    child.kill()  # there is nothing to kill
