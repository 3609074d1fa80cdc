"""Readers of agents' logs wait for what they asked for, and are bounded."""

import asyncio

import pytest

from arriero.balancer.fleet.runtime import fleet_runtime
from arriero.balancer.fleet.runtime.log_reads import MAX_READS, LogReads
from arriero.shared.errors import AgentLost, NotFound, RateLimited
from arriero.shared.inference import AgentId, RequestId
from arriero.shared.messages import LogRead, ReadLog
from arriero.shared.reports.log_lines import LogLine
from tests.balancer.fleet.runtime.query_dispatcher import QueryDispatcher

LINE = LogLine(number=7, at=1.0, level="warning", text="hot")


async def test_lines_reach_who_asked_and_nobody_else() -> None:
    reads = LogReads()
    with reads.expect(RequestId("a")) as mine, reads.expect(RequestId("b")) as other:
        for _ in range(2):  # an agent that answers twice
            reads.read(LogRead(id=RequestId("a"), lines=(LINE,)))
        reads.read(LogRead(id=RequestId("nobody"), lines=(LINE,)))
        assert await mine == (LINE,)
        assert not other.done()
    assert len(reads) == 0


async def test_readers_are_bounded() -> None:
    reads = LogReads()
    waiting = [reads.expect(RequestId(str(number))) for number in range(MAX_READS)]
    for each in waiting:
        each.__enter__()
    with pytest.raises(RateLimited), reads.expect(RequestId("more")):
        pass
    assert len(reads) == MAX_READS


async def test_an_agent_is_asked() -> None:
    dispatcher = QueryDispatcher()
    link, peer = dispatcher.join("a1")
    reading = asyncio.create_task(dispatcher.runtime.read_log(AgentId("a1"), 5))
    await asyncio.sleep(0)
    asked = peer.sent[-1]
    assert isinstance(asked, ReadLog)
    assert asked.after == 5
    assert dispatcher.runtime.num_log_reads == 1
    dispatcher.runtime.agent_said(link, LogRead(id=asked.id, lines=(LINE,)))
    assert await reading == (LINE,)
    assert dispatcher.runtime.num_log_reads == 0


async def test_an_agent_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_runtime, "PATIENCE", 0.01)
    dispatcher = QueryDispatcher()
    dispatcher.join("a1")
    with pytest.raises(AgentLost, match="did not answer"):
        await dispatcher.runtime.read_log(AgentId("a1"), 0)
    assert dispatcher.runtime.num_log_reads == 0


async def test_an_agent_that_is_not_here() -> None:
    with pytest.raises(NotFound):
        await QueryDispatcher().runtime.read_log(AgentId("nobody"), 0)
