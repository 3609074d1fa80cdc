"""What a choice costs the balancer: processor time for each request, over the number of agents."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from statistics import mean, median

from arriero.balancer.fleet.decisions import LinkId, Refuse
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.requests.dispatch.dispatch import Dispatch
from arriero.balancer.fleet.requests.eligibility import Offer
from arriero.balancer.fleet.requests.request import Request
from arriero.balancer.fleet.routing.policies import POLICIES
from arriero.balancer.fleet.routing.rates import Measurement
from arriero.shared.inference import GenerateRequest, Rates, RequestId, Usage
from arriero.shared.inference.prefix_chain import chain_of

NUM_AGENTS = (1, 10, 100, 1000, 10_000)
REQUESTS = 2000
PROMPT = "The driver counts the mules before each bridge. " * 85  # 4 kB
USAGE = Usage(prompt_tokens=1000, cached_tokens=500, completion_tokens=100)
SPREAD = 1.0
"""Standard deviation of the logarithms of speeds: what is believed of all agents changes often."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Mean microseconds a request, from arrival to end; `hashing` is its chain alone (median)."""

    num_agents: int
    by_load: float
    cold: float
    warm: float
    hashing: float


def measure() -> Iterable[Cost]:
    """For each number of agents, half of whose slots are taken."""
    for num in NUM_AGENTS:
        cold = [
            GenerateRequest(prompt=f"{number} {PROMPT}", model="m") for number in range(REQUESTS)
        ]
        warm = [
            GenerateRequest(prompt=f"{number % 50} {PROMPT}", model="m")
            for number in range(REQUESTS)
        ]
        yield Cost(
            num,
            by_load=_requests(num, "load", cold),
            cold=_requests(num, "cost", cold),
            warm=_requests(num, "cost", warm),
            hashing=_hashing(cold),
        )


def _end(random: Random) -> Measurement:
    """The end of an answer that was faster or slower than others."""
    pace = random.lognormvariate(0.0, SPREAD)
    rates = Rates(prefill_tokens_per_second=500 * pace, decode_tokens_per_second=20 * pace)
    return Measurement(USAGE, rates, running=2, seconds=5.0 / pace)


def _requests(num_agents: int, routing: str, requests: list[GenerateRequest]) -> float:
    dispatch = Dispatch(100, POLICIES[routing]())
    for number in range(num_agents):
        offer = Offer(model="m", slots=4, cache_tokens=16_384)
        dispatch.agent_joined(LinkId(number), offer)
    for number in range(2 * num_agents):
        dispatch.enqueue(_request(f"busy {number}", GenerateRequest(prompt="", model="m")))
    made = [_request(f"{number}", asked) for number, asked in enumerate(requests)]
    random = Random(num_agents)
    took = []
    for request in made:
        end = _end(random)
        start = time.thread_time()
        assigned = dispatch.enqueue(request)
        if isinstance(assigned, Refuse):
            raise RuntimeError("a request was refused")
        if assigned:
            dispatch.prompt_read(request, 1000, 500)
        dispatch.ended(request, end)
        took.append(time.thread_time() - start)
        dispatch.take_holds()
    return mean(took) * 1e6


def _request(id: str, asked: GenerateRequest) -> Request:
    """A request whose prompt was hashed already."""
    request = Request(RequestId(id), asked, Limits(), 0.0)
    request.chain.size  # noqa: B018
    return request


def _hashing(requests: list[GenerateRequest]) -> float:
    took = []
    for request in requests:
        start = time.perf_counter()
        chain_of(request)
        took.append(time.perf_counter() - start)
    return median(took) * 1e6
