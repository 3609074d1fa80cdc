"""What a decision costs, in instructions of Python's virtual machine: not in time."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import FrameType
from typing import Any

from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import Decision, LinkId, Send
from arriero.shared.inference import Rates, RequestId, Usage
from arriero.shared.messages import Ended, PromptRead, Start
from tests.balancer.fleet.builders import hello, output, request
from tests.balancer.fleet.core.scene import NO_HEARTBEATS

REQUESTS = 60


class Work:
    """Instructions that ran while it was `counted`."""

    num = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self.num += event == "opcode"
        return self._trace


def fleet_of(num_agents: int) -> Fleet:
    fleet = Fleet(NO_HEARTBEATS)
    for number in range(1, num_agents + 1):
        fleet.agent_joined(LinkId(number), hello(f"a{number}", slots=4), 0.0)
    return fleet


def one_request(fleet: Fleet, number: int) -> None:
    """From its arrival to its end. Eight are fast, then eight slow: averages never settle."""
    now, id = float(number), RequestId(f"r{number}")
    link = _started(fleet.request_arrived(id, request("llama"), now))
    read = PromptRead(id=id, prompt_tokens=100, cached_tokens=0)
    fleet.agent_said(link, output(read), now)
    rate = 20.0 * 32 ** (number // 8 % 2)
    rates = Rates(prefill_tokens_per_second=100 * rate, decode_tokens_per_second=rate)
    usage = Usage(prompt_tokens=100, completion_tokens=50)
    end = Ended(id=id, finish_reason="stop", usage=usage, rates=rates)
    fleet.agent_said(link, output(end), now)


def _started(decisions: list[Decision]) -> LinkId:
    (link,) = (each.link for each in decisions if isinstance(each, Send))
    assert any(isinstance(each, Send) and isinstance(each.message, Start) for each in decisions)
    return link


def work_of_one(num_agents: int) -> float:
    """Mean over some requests, whose speeds change what is believed of all agents."""
    fleet, numbers, work = fleet_of(num_agents), count(), Work()
    for _ in range(REQUESTS):
        one_request(fleet, next(numbers))
    for _ in range(REQUESTS):
        with work.counted():
            one_request(fleet, next(numbers))
    return work.num / REQUESTS
