"""Messages survive their way as frames, and junk is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from arriero.shared.continuation import Continuation
from arriero.shared.errors import WireError
from arriero.shared.inference import (
    AgentId,
    GenerateRequest,
    LogProb,
    Rates,
    RequestId,
    TokenLogProbs,
    Usage,
)
from arriero.shared.inference.prefix_peers import Peer, PrefixSource
from arriero.shared.messages import (
    Busy,
    Called,
    CallStarted,
    Cancel,
    Ended,
    FromAgent,
    FromBalancer,
    Goodbye,
    Heartbeat,
    Hello,
    Issue,
    Lend,
    LogRead,
    Noticed,
    Output,
    Piece,
    ReadLog,
    Refused,
    Reject,
    Start,
    Status,
    Welcome,
    decode_from_agent,
    decode_from_balancer,
    encode_from_agent,
    encode_from_balancer,
)
from arriero.shared.reports.log_lines import LogLine
from arriero.shared.reports.model_info import ModelInfo
from arriero.shared.reports.statistics import Cells, Fetches, Histogram, Statistics

ID = RequestId("r1")
MODEL = ModelInfo(name="m", architecture="llama", parameters=8, size_bytes=0, context_size=4096)
LOG_PROBS = (TokenLogProbs(LogProb(1, b"\xc3", -0.5), (LogProb(2, b"", -0.25),)),)
HELLO = Hello(protocol=1, agent_id=AgentId("a"), name="box", version="0.1.0", slots=4)
STATISTICS = Statistics(
    num_running=2,
    cells=Cells(total=64, used=20, kept=10),
    decode_seconds=0.25,
    decode_tokens_per_second=9.5,
    stalls=Histogram(bounds=(0.1, 1.0), counts=(3, 2, 1), seconds=4.5),
)

from_agent: list[FromAgent] = [
    HELLO,
    Hello(
        protocol=1,
        agent_id=AgentId("a"),
        name="box",
        version="0.1.0",
        slots=0,
        model=MODEL,
        labels={"gpu": "none"},
    ),
    Status(
        slots=4,
        accepting=False,
        model=MODEL,
        issues=(Issue(code="adapter", message="…", adapter="a"),),
    ),
    STATISTICS,
    Statistics(),
    Heartbeat(),
    Output(
        items=(
            Piece(id=ID, text="é", tokens=(1, 2)),
            Piece(id=ID, text="é", tokens=(1,), log_probs=LOG_PROBS),
            Ended(
                id=ID,
                finish_reason="stop",
                usage=Usage(prompt_tokens=3, completion_tokens=2),
                rates=Rates(decode_tokens_per_second=9.5),
            ),
            Refused(
                id=ID,
                error=WireError(
                    code="prompt_too_long", message="long", retryable=False, field="prompt"
                ),
            ),
            CallStarted(id=ID, call_id="c", name="f"),
            Called(id=ID, call_id="c", name="f", arguments="{}"),
            Noticed(id=ID, code="n_discard_clamped", message="too many"),
            Busy(id=ID),
        )
    ),
    LogRead(id=ID, lines=(LogLine(number=2**52, at=1.5, level="error", text="é"),)),
    Status(slots=1, accepting=True, peer=Peer(address="h:1", tls=True, cells="c", cell_bytes=9)),
    Statistics(fetches=Fetches(num=1, failed=2, tokens=3, bytes=4, seconds=0.5, lent=6)),
]
from_balancer: list[FromBalancer] = [
    Welcome(protocol=1, version="0.1.0", heartbeat_interval=1.0, heartbeat_timeout=5.0),
    Reject(reason="protocol 2 is not spoken here", retry=False),
    Start(id=ID, request=GenerateRequest(prompt="a", tools=({"default": None},))),
    Start(
        id=ID,
        request=GenerateRequest(prompt="a"),
        continuation=Continuation.after((1, 2**31), num_characters=3, num_calls=1),
    ),
    Cancel(id=ID),
    Start(
        id=ID,
        request=GenerateRequest(prompt="a"),
        fetch=PrefixSource(address="h:1", ticket="t", seconds=1.5),
    ),
    Lend(ticket="t", seconds=1.5),
    ReadLog(id=ID, after=2**52),
    Goodbye(),
    Heartbeat(),
]


@pytest.mark.parametrize("message", from_agent, ids=lambda each: each.type)
def test_from_the_agent_and_back(message: FromAgent) -> None:
    assert decode_from_agent(encode_from_agent(message)) == message


@pytest.mark.parametrize("message", from_balancer, ids=lambda each: each.type)
def test_from_the_balancer_and_back(message: FromBalancer) -> None:
    assert decode_from_balancer(encode_from_balancer(message)) == message


@given(st.text(), st.lists(st.integers(min_value=0, max_value=2**31 - 1), max_size=5))
def test_any_text_survives(text: str, tokens: list[int]) -> None:
    message = Output(items=(Piece(id=ID, text=text, tokens=tuple(tokens)),))
    assert decode_from_agent(encode_from_agent(message)) == message


def changed(message: FromAgent, **fields: Any) -> str:
    return json.dumps(json.loads(encode_from_agent(message)) | fields)


def output(*items: dict[str, Any]) -> str:
    return json.dumps({"type": "output", "items": items})


ENDED = {"type": "ended", "id": "r1", "finish_reason": "stop", "usage": {}, "rates": {}}


def test_the_least_end() -> None:
    assert isinstance(decode_from_agent(output(ENDED)), Output)


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "{}",
        "[]",
        '{"type": "nonsense"}',
        '{"type": "welcome", "protocol": 1}',
        changed(HELLO, mood="good"),
        changed(HELLO, slots=-1),
        changed(HELLO, slots=4097),
        changed(HELLO, slots="4"),
        changed(HELLO, name=""),
        changed(HELLO, name="x" * 201),
        output({"type": "piece", "id": "r1"}),
        output({"type": "piece", "id": "r1", "text": "", "tokens": [-1]}),
        output(ENDED | {"usage": {"completion_tokens": -1}}),
        output(ENDED | {"rates": {"decode_tokens_per_second": -1}}),
        output({"type": "refused", "id": "r1", "error": {"code": 5}}),
    ],
)
def test_junk_is_refused(frame: str) -> None:
    with pytest.raises(ValidationError):
        decode_from_agent(frame)


@given(st.binary())
def test_any_bytes_are_decoded_or_refused(frame: bytes) -> None:
    for decode in (decode_from_agent, decode_from_balancer):
        with pytest.raises(ValidationError):
            decode(frame)


def test_heartbeats_never_stop_or_run_wild() -> None:
    for seconds in (0, -1, float("nan"), float("inf")):
        frame = json.loads(encode_from_balancer(from_balancer[0])) | {"heartbeat_interval": seconds}
        with pytest.raises(ValidationError):
            decode_from_balancer(json.dumps(frame))
