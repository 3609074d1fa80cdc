from pathlib import Path

import pytest
from pydantic import ValidationError

from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.supervisor_protocol import (
    ORDERS,
    REPORTS,
    Begin,
    Change,
    Changed,
    Dial,
    Failed,
    FitFound,
    Loaded,
    Order,
    Ordered,
    Ready,
    Refresh,
    Report,
    ReportStatus,
    ShareThreads,
    Stop,
    SupervisorChannel,
)
from arriero.shared.inference import AgentId, RequestId
from arriero.shared.messages import FitRead, Issue, ReadFit
from arriero.shared.models.assignments import Assign, Assignment, HostFacts, Reload, Work
from arriero.shared.sampling import SamplingChoices
from tests.agent.fakes import BYTES_INFO

SETTINGS = AgentSettings(
    balancer=("ws://a:1", "wss://b"),
    name="box",
    model=Path("a folder/m.gguf"),
    threads=3,
    max_stall=0.00001,
    drain_timeout=0.0,
    log_format="text",
)
FACTS = HostFacts(memory=2**30, cores=2)
ASSIGNMENT = Assignment(
    name="m",
    source="file:///m.gguf",
    chat_template="two\nlines",
    sampling=SamplingChoices(temperature=0.5),
)


@pytest.mark.parametrize(
    "order",
    [
        Begin(agent_id=AgentId("a"), settings=SETTINGS),
        Begin(agent_id=AgentId("a"), settings=AgentSettings()),
        Begin(agent_id=AgentId("a"), settings=SETTINGS, facts=FACTS, assignment=ASSIGNMENT),
        Dial(takes_over=True, work=Work(revision=1, assignment=ASSIGNMENT)),
        ReportStatus(),
        Refresh(),
        ReportStatus(issues=(Issue(code="c", message="two\nlines"),)),
        Change(assignment=ASSIGNMENT, adapter=("calm=/calm.gguf:0.5",)),
        ShareThreads(threads=3, threads_batch=4),
        Stop(),
        Stop(drain_timeout=1.5),
        FitFound(read=FitRead(id=RequestId("f"))),
    ],
)
def test_orders_are_one_line_and_arrive_as_they_were(order: Order) -> None:
    line = ORDERS.encode(order)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert ORDERS.decode(line) == order


@pytest.mark.parametrize(
    "report",
    [
        Loaded(model=BYTES_INFO),
        Ready(),
        Ordered(order=Assign(revision=1, assignment=ASSIGNMENT)),
        Ordered(order=Reload()),
        Ordered(order=ReadFit(id=RequestId("f"), source="file:///m.gguf")),
        Changed(assignment=ASSIGNMENT, issue=Issue(code="adapter", message="no such file")),
        Failed(reason="why\nnot"),
    ],
)
def test_reports_likewise(report: Report) -> None:
    line = REPORTS.encode(report)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert REPORTS.decode(line) == report


@pytest.mark.parametrize("line", [b"", b"junk\n", b'{"type": "loaded", "more": 1}\n', b"\xff"])
def test_junk(line: bytes) -> None:
    with pytest.raises(ValidationError):
        ORDERS.decode(line)
    with pytest.raises(ValidationError):
        REPORTS.decode(line)


def test_a_channel_keeps_every_order_in_order() -> None:
    reports: list[Report] = []
    channel = SupervisorChannel(Begin(agent_id=AgentId("a"), settings=SETTINGS), reports.append)
    channel.report(Loaded(model=BYTES_INFO))
    assert reports == [Loaded(model=BYTES_INFO)]
    orders = [
        ReportStatus(issues=(Issue(code="c", message="m"),)),
        Change(assignment=ASSIGNMENT),
        ReportStatus(),
    ]
    for order in orders:
        channel.orders.put_nowait(order)
    assert [channel.orders.get_nowait() for _ in orders] == orders
