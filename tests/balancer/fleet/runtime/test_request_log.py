"""Lines about requests: one for a move, one for the end."""

import logging
from dataclasses import replace

import pytest

from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.decisions import LogBad
from arriero.balancer.fleet.recorder import Origin
from arriero.balancer.fleet.runtime.request_log import log_bad
from arriero.shared.errors import AgentLost
from arriero.shared.inference import Failed, Rates, Usage
from tests.balancer.fleet.builders import ended, output, piece, request
from tests.balancer.fleet.runtime.query_dispatcher import QueryDispatcher


async def test_each_ended_request_is_one_line_with_its_figures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="arriero.balancer.fleet")
    dispatcher = QueryDispatcher()
    link, _ = dispatcher.join()
    caller = Caller(address="192.0.2.7", user_agent="curl/8.0")
    stream = dispatcher.runtime.open(request(), caller=caller)
    dispatcher.clock.now += 1.5
    rates = Rates(prefill_tokens_per_second=100.0, decode_tokens_per_second=20.0)
    usage = Usage(prompt_tokens=3, cached_tokens=1, completion_tokens=2)
    end = replace(ended(stream.id), usage=usage, rates=rates)
    dispatcher.runtime.agent_said(link, output(piece(stream.id), end))
    [record] = caplog.records
    assert record.getMessage() == "request ended"
    assert record.__dict__["context"] == {
        "id": stream.id,
        "model": "llama",
        "agent": "host-a1",
        "caller": "anonymous",
        "address": "192.0.2.7",
        "user_agent": "curl/8.0",
        "code": "stop",
        "prompt_tokens": 3,
        "cached_tokens": 1,
        "completion_tokens": 2,
        "queue_ms": 0.0,
        "first_token_ms": 1500.0,
        "total_ms": 1500.0,
        "prefill_tokens_per_second": 100.0,
        "decode_tokens_per_second": 20.0,
    }


async def test_a_move_is_recorded_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher = QueryDispatcher()
    caplog.set_level(logging.INFO)
    link, _ = dispatcher.join()
    stream = dispatcher.runtime.open(request(), caller=ANONYMOUS)
    dispatcher.runtime.agent_left(link)
    assert dispatcher.recorder.moves == [("lost", Origin("host-a1", "llama"))]
    link, _ = dispatcher.join("a2")
    dispatcher.runtime.agent_left(link)
    assert [event async for event in stream][-1] == Failed(
        AgentLost(
            "2 agents in a row were lost while they ran nothing but this request, the likely cause"
        )
    )
    move, end = [record for record in caplog.records if "request" in record.message]
    assert (move.levelname, end.levelname) == ("INFO", "WARNING")
    assert stream.id in str(vars(move)) and stream.id in str(vars(end))


async def test_an_agent_that_says_what_cannot_be_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dispatcher = QueryDispatcher()
    link, _ = dispatcher.join()
    caplog.set_level(logging.WARNING, logger="arriero.balancer.fleet")
    dispatcher.runtime.agent_broke(link, "why")
    [record] = caplog.records
    assert record.getMessage() == "bad message from an agent: its connection ends"
    assert record.__dict__["context"] == {"agent": "host-a1", "reason": "why"}
    assert record.exc_info is None


def test_a_fault_of_ours_has_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    log_bad(LogBad("a", "why", ZeroDivisionError("x"), is_ours=True))
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None and record.exc_info[0] is ZeroDivisionError
