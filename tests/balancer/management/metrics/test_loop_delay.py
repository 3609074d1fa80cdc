import asyncio

from prometheus_client import CollectorRegistry

from arriero.balancer.management.metrics import loop_delay
from arriero.balancer.management.metrics.loop_delay import LoopDelay


def count(registry: CollectorRegistry, le: str) -> float:
    name = "arriero_event_loop_delay_seconds_bucket"
    return registry.get_sample_value(name, {"le": le}) or 0.0


async def test_lateness_is_observed() -> None:
    now = 0.0
    delay = LoopDelay(lambda: now)
    registry = CollectorRegistry()
    registry.register(delay.histogram)
    timers: list[tuple[float, object, tuple[object, ...]]] = []
    loop = asyncio.get_running_loop()
    real = loop.call_later

    def call_later(seconds: float, callback: object, *args: object) -> asyncio.TimerHandle:
        timers.append((seconds, callback, args))
        return real(1000, lambda: None)

    loop.call_later = call_later  # type: ignore[assignment,method-assign]
    try:
        delay.start()
        for lateness in (0.0, 0.3):
            _, callback, args = timers.pop()
            now += loop_delay.INTERVAL + lateness
            callback(*args)  # type: ignore[operator]
        [(again, _, _)] = timers
        delay.stop()
    finally:
        loop.call_later = real  # type: ignore[method-assign]
    assert (again, count(registry, "0.001"), count(registry, "0.25")) == (loop_delay.INTERVAL, 1, 1)
    assert count(registry, "0.5") == 2
