from pathlib import Path

import pytest
from pydantic import ValidationError

from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.supervisor_protocol import (
    Begin,
    Failed,
    Loaded,
    Order,
    Ready,
    Report,
    Stop,
    SupervisorChannel,
    Tell,
    decode_order,
    decode_report,
    encode_order,
    encode_report,
)
from arriero.shared.inference import AgentId
from arriero.shared.messages import Issue
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


@pytest.mark.parametrize(
    "order",
    [
        Begin(agent_id=AgentId("a"), settings=SETTINGS),
        Begin(agent_id=AgentId("a"), settings=AgentSettings()),
        Tell(),
        Tell(issues=(Issue(code="c", message="two\nlines"),)),
        Stop(),
    ],
)
def test_orders_are_one_line_and_arrive_as_they_were(order: Order) -> None:
    line = encode_order(order)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert decode_order(line) == order


@pytest.mark.parametrize(
    "report", [Loaded(model=BYTES_INFO), Ready(model="m"), Failed(reason="why\nnot")]
)
def test_reports_likewise(report: Report) -> None:
    line = encode_report(report)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert decode_report(line) == report


@pytest.mark.parametrize("line", [b"", b"junk\n", b'{"type": "loaded", "more": 1}\n', b"\xff"])
def test_junk(line: bytes) -> None:
    with pytest.raises(ValidationError):
        decode_order(line)
    with pytest.raises(ValidationError):
        decode_report(line)


def test_a_lifeline_keeps_every_tell_in_order() -> None:
    reports: list[Report] = []
    channel = SupervisorChannel(AgentId("a"), reports.append)
    channel.report(Loaded(model=BYTES_INFO))
    channel.issues.put_nowait((Issue(code="c", message="m"),))
    channel.issues.put_nowait(())
    assert reports == [Loaded(model=BYTES_INFO)]
    assert [channel.issues.get_nowait() for _ in range(2)] == [(Issue(code="c", message="m"),), ()]
