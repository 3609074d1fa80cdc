"""A store as a balancer leaves it after a busy hour: a full history, a full list of endings.

A balancer that starts on it holds from the first moment what it would otherwise gather in an hour.
"""

import itertools
import time

from arriero.balancer.fleet.recorder import Ending, Origin
from arriero.balancer.fleet.view import FleetTotals
from arriero.balancer.history.history_task import HistoryTask
from arriero.balancer.history.series import to_saved
from arriero.balancer.store.records import MAX_ENDINGS, STEPS_KEPT
from arriero.balancer.store.store import open_store
from arriero.balancer.store.url import parse_store_url
from arriero.shared.inference import RequestId, Timings, Usage

TOTALS = FleetTotals(
    num_agents=1,
    is_ready=True,
    is_draining=False,
    queue_depth=1,
    queue_limit=256,
    slots_total=4,
    slots_busy=4,
    tokens_total=0,
    items_ignored=0,
)
GAPS = (0.005, 0.012, 0.02, 0.03, 0.05, 0.08, 0.13, 0.2)
"""Seconds between tokens: as many buckets as a busy second fills."""


async def fill(url: str, agent: str, model: str) -> None:
    """Write it to the store at `url`, which is empty."""
    numbers = itertools.count()
    now = time.time() - STEPS_KEPT[1]
    history = HistoryTask(clock=lambda: now)
    origin = Origin(agent, model)
    steps = []
    for second in range(STEPS_KEPT[1] - 2):
        for _ in range(-(-MAX_ENDINGS // STEPS_KEPT[1])):
            history.recorder.first_token(GAPS[second % len(GAPS)], origin)
            history.recorder.between_tokens(GAPS, origin)
            history.recorder.tokens(300, origin)
            history.recorder.ended(_ending(next(numbers), origin))
        now += 1
        step = history.recorder.close_step(int(now) - 1, 1, TOTALS)
        steps.append(to_saved(step, 1))
    store = await open_store(parse_store_url(url))
    if not store.is_lasting:
        raise ValueError(f"{url} keeps no history")
    await store.history.append_history(
        steps, history.endings.take_unwritten(), history.usage.take_unwritten()
    )
    await store.close()


def _ending(number: int, origin: Origin) -> Ending:
    return Ending(
        code="stop",
        request_id=RequestId(f"{number:032x}"),
        agent=origin.agent,
        model=origin.model,
        usage=Usage(prompt_tokens=1000 + number, cached_tokens=0, completion_tokens=300),
        timings=Timings(
            queue_ms=number / 7,
            first_token_ms=number / 3,
            total_ms=number / 2,
            prefill_tokens_per_second=number / 11,
            decode_tokens_per_second=number / 13,
        ),
    )
