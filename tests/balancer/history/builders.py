"""Endings, steps and totals for tests of the history."""

from arriero.balancer.fleet.recorder import Ending
from arriero.balancer.fleet.view import FleetTotals
from arriero.balancer.history.series import Levels, Step
from arriero.balancer.history.sums import Sums, histogram
from arriero.shared.errors import RequestError
from arriero.shared.inference import RequestId, Timings, Usage

TOTALS = FleetTotals(
    num_agents=2,
    is_ready=True,
    is_draining=False,
    queue_depth=3,
    queue_limit=256,
    slots_total=8,
    slots_busy=5,
    tokens_total=0,
    items_ignored=0,
)


def ending(
    id: str = "r",
    code: str = "stop",
    *,
    agent: str | None = "ana",
    model: str | None = "tiny",
    error: RequestError | None = None,
) -> Ending:
    return Ending(
        code=code,
        request_id=RequestId(id),
        agent=agent,
        model=model,
        error=error,
        usage=Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=7, reasoning_tokens=2),
        timings=Timings(queue_ms=1.0, first_token_ms=20.0, total_ms=300.0, moves=1),
    )


def sums(tokens: int = 1, *gaps: float, **ended: int) -> Sums:
    return Sums(completion_tokens=tokens, ended=ended, between_tokens=histogram(gaps))


def step(at: int, tokens: int = 1, *, seconds: int = 1, queue: int = 0, **agents: int) -> Step:
    return Step(
        at=at,
        seconds=seconds,
        levels=Levels(queue_depth=queue, queue_peak=queue),
        fleet=sums(tokens),
        agents={name: sums(count) for name, count in agents.items()},
    )
