"""Sessions and requests to test with: of an agent with two slots."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from arriero.agent.link.queries import OpenQueries
from arriero.agent.link.requests import Requests, Slots
from arriero.agent.link.session import PROTOCOLS, Session
from arriero.agent.sequence_id import SequenceId
from arriero.shared.inference import AgentId, GenerateRequest, Rates, RequestId, Usage
from arriero.shared.messages import (
    PROTOCOL_VERSION,
    Cancel,
    Ended,
    Hello,
    Piece,
    Start,
    Status,
    Welcome,
)
from arriero.shared.reports.model_info import ModelInfo

HELLO = Hello(protocol=PROTOCOL_VERSION, agent_id=AgentId("a"), name="box", version="1", slots=2)
STATUS = Status(slots=2, accepting=True)
REQUEST = GenerateRequest(prompt="x", priority=3, prefill_only=True)
ENDED = Ended(id=RequestId("r"), finish_reason="stop", usage=Usage(), rates=Rates())
ONE, TWO = SequenceId(1), SequenceId(2)


def start(name: str, request: GenerateRequest = REQUEST) -> Start:
    return Start(id=RequestId(name), request=request)


def cancel(name: str) -> Cancel:
    return Cancel(id=RequestId(name))


def piece(name: str, text: str) -> Piece:
    return Piece(id=RequestId(name), text=text, tokens=tuple(text.encode()))


def welcome(*, interval: float = 1.0, timeout: float = 5.0) -> Welcome:
    return Welcome(
        protocol=PROTOCOL_VERSION,
        version="1",
        heartbeat_interval=interval,
        heartbeat_timeout=timeout,
    )


def make_requests(*, slots: Slots | None = None, numbers: Iterator[int] | None = None) -> Requests:
    return Requests(slots=slots or Slots(2), numbers=numbers or count(1))


def make_session(
    requests: Requests | None = None,
    *,
    hello: Hello = HELLO,
    status: Status = STATUS,
    model: ModelInfo | None = None,
    query_numbers: Iterator[int] | None = None,
    protocols: range = PROTOCOLS,
) -> Session:
    return Session(
        hello=replace(hello, model=model),
        status=replace(status, model=model),
        requests=make_requests() if requests is None else requests,
        queries=OpenQueries(query_numbers or count(101)),
        protocols=protocols,
    )
