"""Requests and events are read back as they were, and what is not readable says so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.durable.request_documents import (
    restored,
    restored_events,
    saved,
    saved_events,
)
from arriero.balancer.fleet.caller import Caller
from arriero.balancer.fleet.retained_record import AskedRequest, RetainedKey, RetainedRecord
from arriero.shared.errors import AgentLost, InvalidRequest
from arriero.shared.inference import (
    Begun,
    ChatMessage,
    Done,
    Event,
    Failed,
    GenerateRequest,
    LogProb,
    Notice,
    RequestId,
    Timings,
    Token,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
    Usage,
)

RECORD = RetainedRecord(
    RetainedKey(None, "/v1#k#0"),
    RequestId("r"),
    b"\0\xff",
    12.5,
    keeps_failure=True,
    model="demo",
)
REQUEST = GenerateRequest(
    messages=(ChatMessage(role="user", content="né\0"),),
    seed=7,
    tools=({"type": "function", "function": {"name": "f"}},),
    stop=("x",),
)
LOG_PROBS = TokenLogProbs(LogProb(1, b"\xff", -0.5), (LogProb(2, b"b"),))
TIMINGS = Timings(queue_ms=1.0, first_token_ms=None, total_ms=2.0, moves=1)
DONE = Done("stop", Usage(prompt_tokens=3), TIMINGS, "ana", "END")
EVENTS = st.one_of(
    st.builds(
        Token,
        st.text(max_size=5),
        st.sampled_from(["content", "reasoning", "tool_call", "prompt"]),
        st.lists(st.integers(0, 2**31 - 1), max_size=3).map(tuple),
        st.sampled_from([(), (LOG_PROBS, LOG_PROBS)]),
    ),
    st.builds(ToolCallStarted, st.text(), st.text()),
    st.builds(ToolCall, st.text(), st.text(), st.text()),
    st.builds(Notice, st.text(), st.text()),
    st.builds(Begun, st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from([DONE, Failed(AgentLost("gone")), Failed(InvalidRequest("no", field="x"))]),
)


@pytest.mark.parametrize("owner", [None, "ana@1"])
def test_a_request_is_read_back(owner: str | None) -> None:
    record = RECORD._replace(key=RetainedKey(owner, "/v1#k#0"))
    asked = AskedRequest(
        REQUEST, Caller("ana", address="::1", owner=owner), b'{"body": "\xc3\xb1"}'
    )
    assert restored(saved(record, asked)) == (record, asked)


@given(st.lists(EVENTS, max_size=5))
def test_events_are_read_back(events: list[Event]) -> None:
    assert restored_events(saved_events(events)) == events


@pytest.mark.parametrize("document", ['[["later", 1]]', '[["begun"]]', "[", '[["done", {}]]'])
def test_what_is_not_readable(document: str) -> None:
    with pytest.raises(ValueError):
        restored_events(document)


def test_a_request_of_a_later_version_is_not_readable() -> None:
    later = saved(RECORD, AskedRequest(REQUEST, Caller()))
    with pytest.raises(ValueError, match="later"):
        restored(type(later)(**{**_fields(later), "document": '{"later": 1}'}))


def _fields(saved: object) -> dict[str, object]:
    names = ("id", "owner", "name", "digest", "document", "created_at")
    return {name: getattr(saved, name) for name in names}
