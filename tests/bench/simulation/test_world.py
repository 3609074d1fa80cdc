import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from random import Random
from statistics import mean

import pytest

from arriero.balancer.control.desired_state import AgentChoice, DesiredModel, DesiredState
from bench.simulation.arrivals import TRACES, Arrival
from bench.simulation.fluid_host import HostKind, Speeds
from bench.simulation.outcome import Outcome
from bench.simulation.world import Desired, Losses, Policy, World

HOST = HostKind(slots=4, cache=8192, speeds=Speeds(prefill=3000, step=0.02, sequence=0.001))


def world(trace: str, num: int, *, policy: Policy | None = None, **more: object) -> Outcome:
    arrivals = TRACES[trace](Random(1), 3.0)
    policy = policy or Policy()
    return World([HOST] * 3, arrivals, num_requests=num, policy=policy, **more).run()  # type: ignore[arg-type]


def test_every_request_ends_once_with_all_its_tokens() -> None:
    outcome = world("azure-chat", 300)
    answers = [each.num_answer for each in islice(TRACES["azure-chat"](Random(1), 3.0), 300)]
    assert (outcome.num_requests, outcome.num_ended, outcome.num_failed) == (300, 300, 0)
    assert outcome.num_answer == sum(answers)
    assert outcome.num_computed == pytest.approx(outcome.num_prompt - outcome.num_cached, rel=0.01)
    assert len(outcome.waits) == len(outcome.first_tokens) == len(outcome.totals) == 300


def test_the_last_request_counts_also_where_all_before_it_have_ended() -> None:
    requests = [Arrival(at, 0, session, 100, 10) for session, at in enumerate((0.0, 60.0), 1)]
    outcome = World([HOST], iter(requests), num_requests=2, policy=Policy()).run()
    assert outcome.num_ended == 2 and outcome.seconds > 60


def test_agents_that_are_lost_cost_tokens_and_no_request() -> None:
    outcome = world("poisson", 400, losses=Losses(every=6.0, away=2.0))
    assert outcome.num_ended == 400 and not outcome.num_failed
    assert outcome.num_moved > 5
    assert outcome.num_lost > 0
    assert outcome.num_computed > outcome.num_prompt - outcome.num_cached


def test_sessions_are_cached_where_they_were_and_by_load_they_are_not() -> None:
    kind = replace(HOST, cache=65_536)

    def shared(policy: Policy) -> Outcome:
        arrivals = TRACES["mooncake"](Random(1), 1.0)
        return World([kind] * 3, arrivals, num_requests=200, policy=policy).run()

    by_cost, by_load = shared(Policy()), shared(Policy(routing="load"))
    assert by_cost.cached_share > by_load.cached_share + 0.05


def test_one_caller_in_front_costs_the_others_less_where_callers_are_apart() -> None:
    apart = world("bursts", 250)
    together = world("bursts", 250, policy=Policy(callers_apart=False))
    assert apart.fairness > together.fairness


def steered(losses: Losses | None, *, load_seconds: float = 3.0, num: int = 200) -> Outcome:
    """Five agents, two models on two of them each: one agent is spare."""
    models = [
        DesiredModel(name=name, source=f"file:///{name}.gguf", agents=AgentChoice(replicas=2))
        for name in ("large", "small")
    ]
    desired = Desired(state=DesiredState(models=tuple(models)), load_seconds=load_seconds)
    arrivals = TRACES["poisson"](Random(1), 3.0)
    return World(
        [HOST] * 5,
        arrivals,
        num_requests=num,
        policy=Policy(),
        losses=losses,
        desired=desired,
    ).run()


def test_agents_without_models_load_what_the_controller_says() -> None:
    outcome = steered(None)
    assert (outcome.num_ended, outcome.num_failed, outcome.num_orders) == (200, 0, 4)
    assert not outcome.repairs
    assert max(outcome.waits) == pytest.approx(3.0, abs=0.5)  # until the models are loaded


def test_in_place_of_a_lost_agent_another_is_told_to_load_its_model() -> None:
    outcome = steered(Losses(every=10.0, away=40.0))
    assert outcome.num_ended == 200 and not outcome.num_failed
    assert outcome.num_losses > 3
    assert outcome.num_orders > 4 and outcome.repairs
    assert min(outcome.repairs) > 3.0  # it takes so long to load one


def test_who_comes_back_soon_gets_its_model_back() -> None:
    """The controller keeps the place of who has just gone, though a spare agent is there."""
    outcome = steered(Losses(every=15.0, away=5.0))
    assert len(outcome.repairs) >= 2
    assert outcome.repairs[0] == pytest.approx(5.0 + 3.0, abs=0.2)


@pytest.mark.thorough
def test_waits_are_erlangs() -> None:
    """M/M/c: four agents of one slot, 70 % busy, answers of exponential length."""
    servers, service, load = 4, 1.0, 0.7
    kind = HostKind(
        slots=1, cache=4096, speeds=Speeds(prefill=1e9, step=service / 1000, sequence=0)
    )

    def arrivals() -> Iterator[Arrival]:
        random, at, number = Random(11), 0.0, 0
        while True:
            at += random.expovariate(servers * load / service)
            number += 1
            yield Arrival(at, 0, number, 8, max(1, round(random.expovariate(1 / 1000))))

    policy = Policy(routing="load", callers_apart=False)
    outcome = World([kind] * servers, arrivals(), num_requests=1500, policy=policy).run()
    assert mean(outcome.waits) == pytest.approx(erlang_c(servers, load, service), rel=0.2)


def erlang_c(servers: int, load: float, service: float) -> float:
    """Mean wait in an M/M/c queue (Erlang, 1917), in seconds."""
    offered = servers * load
    busy = offered**servers / math.factorial(servers) / (1 - load)
    others = sum(offered**num / math.factorial(num) for num in range(servers))
    return busy / (others + busy) * service / (servers * (1 - load))
