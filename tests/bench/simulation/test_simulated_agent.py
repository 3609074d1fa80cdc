from typing import cast

import pytest

from arriero.shared.inference import AgentId, ChatMessage, GenerateRequest, RequestId
from arriero.shared.messages import (
    PROTOCOL_VERSION,
    Busy,
    Ended,
    FromAgent,
    Output,
    PromptRead,
    Start,
    Status,
    Welcome,
)
from arriero.shared.models.assignments import Assign, Assignment
from bench.simulation.fluid_host import HostKind, Speeds
from bench.simulation.simulated_agent import SimulatedAgent

KIND = HostKind(slots=1, cache=4096, speeds=Speeds(prefill=100.0, step=0.1, sequence=0.0))
WELCOME = Welcome(
    protocol=PROTOCOL_VERSION, version="", heartbeat_interval=1e9, heartbeat_timeout=1e9
)


def agent(load_seconds: float | None = None) -> SimulatedAgent:
    made = SimulatedAgent(AgentId("a"), "host", KIND, 0.0, load_seconds=load_seconds)
    made.dial(0.0)
    made.received(WELCOME, 0.0)
    return made


def start(id: str) -> Start:
    message = ChatMessage(role="user", content=id.ljust(400, "x"))
    return Start(id=RequestId(id), request=GenerateRequest(messages=(message,), max_tokens=11))


def assign(revision: int, name: str | None) -> Assign:
    assignment = None if name is None else Assignment(name=name, source=f"file:///{name}.gguf")
    return Assign(revision=revision, assignment=assignment)


def until_idle(one: SimulatedAgent) -> list[tuple[float, FromAgent]]:
    messages = []
    while (due := one.next_change()) is not None:
        messages += [(due, message) for message in one.advance(due)]
    return messages


def test_it_says_what_it_serves_and_how_much_its_cache_holds() -> None:
    one = SimulatedAgent(AgentId("a"), "host", KIND, 0.0)
    hello = one.dial(0.0)
    assert hello.model is not None and hello.facts.is_pinned
    assert hello.model.fingerprint
    [statistics] = one.received(WELCOME, 0.0)
    assert statistics.type == "statistics"


def test_its_session_gives_slots_to_requests() -> None:
    one = agent()
    assert one.received(start("a"), 0.0) == []
    (busy,) = one.received(start("b"), 0.0)
    assert isinstance(busy, Output) and isinstance(busy.items[0], Busy)
    messages = [(now, type(cast(Output, each).items[0])) for now, each in until_idle(one)]
    assert messages == [(pytest.approx(1.0), PromptRead), (pytest.approx(2.0), Ended)]
    assert one.received(start("b"), 2.0) == []


def test_it_loads_what_it_is_told_to() -> None:
    one = agent(load_seconds=5.0)
    (loading,) = one.received(assign(1, "m"), 1.0)
    assert isinstance(loading, Status) and loading.work is not None
    assert (loading.model, loading.work.phase) == (None, "loading")
    assert not one.is_ready
    ((now, ready),) = until_idle(one)
    assert now == 6.0 and one.is_ready
    assert isinstance(ready, Status) and ready.model is not None and ready.work is not None
    assert (ready.model.name, ready.work.phase, ready.work.revision) == ("m", "serving", 1)


def test_it_ends_its_requests_before_it_loads_something_else() -> None:
    one = agent(load_seconds=5.0)
    one.received(assign(1, "m"), 0.0)
    until_idle(one)
    one.received(start("a"), 5.0)
    (draining,) = one.received(assign(2, "n"), 5.5)
    assert isinstance(draining, Status) and draining.work is not None
    assert (draining.model, draining.work.phase) == (None, "draining")
    phases = [
        (now, each.work.phase)
        for now, each in until_idle(one)
        if isinstance(each, Status) and each.work is not None
    ]
    assert phases == [(pytest.approx(7.0), "loading"), (pytest.approx(12.0), "serving")]
    assert one.num_computed == 100


def test_without_a_wish_it_serves_nothing() -> None:
    one = agent(load_seconds=5.0)
    one.received(assign(1, "m"), 0.0)
    until_idle(one)
    (messages,) = one.received(assign(2, None), 9.0)
    assert isinstance(messages, Status) and messages.model is None and not one.is_ready
