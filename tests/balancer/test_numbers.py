"""The parts' numbers in the metrics."""

from contextlib import AsyncExitStack

from arriero.balancer.numbers import collect_numbers, measure_loop_delay
from arriero.balancer.parts import assemble
from arriero.balancer.settings import BalancerSettings


async def test_the_metrics_read_the_parts() -> None:
    async with AsyncExitStack() as until_the_end:
        parts = await assemble(BalancerSettings(), until_the_end)
        collect_numbers(parts)
        measure_loop_delay(parts.metrics, until_the_end)
        shown, _ = parts.metrics.render("")
    names = {line.split()[0] for line in shown.decode().splitlines() if line[0] != "#"}
    assert names >= {
        *("arriero_stored_responses", "arriero_stored_responses_unwritten"),
        *("arriero_kept_requests", "arriero_access_keys"),
        *("arriero_sessions", "arriero_batch_lines_running", "arriero_store_away"),
        *("arriero_event_loop_delay_seconds_count", "arriero_queue_depth"),
    }
