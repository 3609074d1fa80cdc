from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from arriero.shared.inference import ChatMessage, GenerateRequest, RequestId
from arriero.shared.messages import Ended, Item, PromptRead, Start
from bench.routing.host import TOKEN_BYTES, Speeds
from bench.routing.simulation import HostKind
from bench.simulation.arrivals import SHORT, Arrival, one_by_one
from bench.simulation.fluid_host import STALL
from bench.simulation.machine import Machine
from bench.simulation.outcome import Outcome
from bench.simulation.prompts import completion_of
from bench.simulation.scheduled_host import ScheduledHost
from bench.simulation.simulated_agent import MakeHost, fluid, scheduled
from bench.simulation.world import Losses, Policy, World

SPEEDS = Speeds(prefill=1000, step=0.02, sequence=0.005)


def start(name: str, num_prompt: int, num_answer: int) -> Start:
    text = name.ljust(num_prompt * TOKEN_BYTES, "x")
    request = GenerateRequest(
        messages=(ChatMessage(role="user", content=text),), max_tokens=num_answer
    )
    return Start(id=RequestId(name), request=request)


def run(host: ScheduledHost) -> list[tuple[float, Item]]:
    """Everything until it is idle, with the time of each."""
    items = []
    while (now := host.next_change()) is not None:
        items += [(now, item) for item in host.advance(now)]
    return items


def test_a_request_alone_takes_what_its_steps_take() -> None:
    host = ScheduledHost(SPEEDS, slots=2, cache=4096)
    host.start(start("a", 200, 10), 5.0)
    items = run(host)
    read = next(now for now, item in items if isinstance(item, PromptRead))
    ended, end = items[-1]
    assert isinstance(end, Ended) and end.usage.completion_tokens == 10
    assert read == pytest.approx(5.0 + 200 / 1000)
    assert ended == pytest.approx(read + 9 * 0.025)
    assert host.num_computed == 200 and not host.running


def test_a_step_takes_longer_the_more_tokens_are_before_it() -> None:
    host = ScheduledHost(replace(SPEEDS, depth=0.001), slots=2, cache=4096)
    host.start(start("a", 200, 3), 0.0)
    ended, _ = run(host)[-1]
    assert ended == pytest.approx(0.2 + 2 * 0.025 + 0.200 + 0.201)


def test_a_long_prompt_beside_a_stream_is_read_in_chunks() -> None:
    host = ScheduledHost(SPEEDS, slots=2, cache=8192)
    host.start(start("stream", 10, 300), 0.0)
    while (now := host.next_change()) is not None and now < 1.0:
        host.advance(now)
    host.start(start("newcomer", 2000, 1), 1.0)
    items = run(host)
    told = [now for now, item in items if item.id == "stream"]
    assert 0.05 < max(later - earlier for earlier, later in pairwise(told)) < STALL


def test_a_prompt_that_was_asked_before_is_cached() -> None:
    host = ScheduledHost(SPEEDS, slots=2, cache=4096)
    host.start(start("a", 400, 2), 0.0)
    run(host)
    again = start("a", 400, 2)
    host.start(Start(id=RequestId("b"), request=again.request), 10.0)
    read = [item for _, item in run(host) if isinstance(item, PromptRead)]
    assert read[0].cached_tokens == 399


def test_a_prompt_may_be_of_tokens() -> None:
    host = ScheduledHost(SPEEDS, slots=2, cache=4096)
    first = Arrival(0.0, 0, 1, 300, 2, document=5, num_shared=200)
    host.start(Start(id=RequestId("a"), request=completion_of(first)), 0.0)
    run(host)
    other = replace(first, session=2)
    host.start(Start(id=RequestId("b"), request=completion_of(other)), 10.0)
    read = [item for _, item in run(host) if isinstance(item, PromptRead)]
    assert read[0].cached_tokens == 200


def test_hosts_on_one_machine_slow_each_other_down_while_both_compute() -> None:
    machine = Machine([(1.0, 2.0)])
    one, other = (ScheduledHost(SPEEDS, slots=2, cache=4096, machine=machine) for _ in range(2))
    one.start(start("a", 100, 1), 0.0)
    assert one.next_change() == pytest.approx(0.1)
    other.start(start("b", 100, 1), 0.05)
    assert one.next_change() == pytest.approx(0.05 + 2 * 0.05)
    assert not one.advance(0.1)
    assert one.advance(0.15)
    assert other.next_change() == pytest.approx(0.15 + 0.05)
    run(other)
    assert machine.num_busy == 0


def outcome(make_host: MakeHost, losses: Losses | None = None) -> Outcome:
    kind = HostKind(slots=4, cache=16_384, speeds=SPEEDS)
    arrivals = one_by_one(Random(1), 3.0, lengths=SHORT)
    return World(
        [kind] * 3, arrivals, num_requests=150, policy=Policy(), losses=losses, make_host=make_host
    ).run()


def test_both_kinds_of_hosts_do_about_the_same() -> None:
    planned, flowing = outcome(scheduled), outcome(fluid)
    assert planned.num_ended == flowing.num_ended == 150
    assert sum(planned.totals) == pytest.approx(sum(flowing.totals), rel=0.25)


def test_losses_cost_scheduled_hosts_no_request() -> None:
    planned = outcome(scheduled, Losses(every=5.0, away=2.0))
    assert planned.num_ended == 150 and not planned.num_failed
    assert planned.num_moved > 3
