"""The time without an agent adds up over stays in the queue, and bounds them together."""

from math import inf

from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.lifecycle import Lifecycle
from arriero.balancer.fleet.limits import Limits
from arriero.shared.inference import GenerateRequest, RequestId


class Life(Lifecycle):
    __slots__ = ()

    @property
    def queue_deadline(self) -> float:
        return self._queue_deadline


def life(now: float) -> Life:
    limits = Limits(buffered_request_timeout=10.0, request_timeout=60.0)
    return Life(RequestId("r"), GenerateRequest(prompt="Once"), limits, now, caller=ANONYMOUS)


def test_time_with_an_agent_does_not_count_as_waiting() -> None:
    one = life(100.0)
    assert (one.waited(103.0), one.queue_deadline) == (3.0, 110.0)
    one.leave_queue("a", 104.0)
    assert (one.agent, one.waited(150.0), one.queue_deadline) == ("a", 4.0, inf)
    one.join_queue(120.0)
    assert (one.waited(121.0), one.queue_deadline) == (5.0, 126.0)


def test_the_end_of_all_its_time_does_not_move() -> None:
    one = life(100.0)
    one.leave_queue("a", 104.0)
    one.join_queue(120.0)
    assert (one.expires_at, one.total_ms(101.5)) == (160.0, 1500.0)
