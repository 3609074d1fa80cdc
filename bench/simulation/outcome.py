"""What came of a simulated day: waits, shares, and what was computed in vain."""

from collections.abc import Sequence
from dataclasses import dataclass, field


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def jain(values: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all are equal, 1/n where one has everything.

    (sum x)² / (n · sum x²): Jain, Chiu, Hawe, DEC-TR-301, 1984.
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


@dataclass(slots=True)
class Outcome:
    """Seconds of virtual time; tokens; microseconds of the balancer's core.

    `asked` and `served` are each caller's tokens, as far as they ended before the last arrival.
    """

    waits: list[float] = field(default_factory=list)
    first_tokens: list[float] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    num_requests: int = 0
    num_ended: int = 0
    num_failed: int = 0
    num_moved: int = 0
    num_prompt: int = 0
    num_cached: int = 0
    num_computed: float = 0.0
    """Prompt tokens that agents computed, those after a loss included."""
    num_answer: int = 0
    num_lost: int = 0
    """Tokens that had been computed by agents that were lost and were computed again."""
    busy_seconds: float = 0.0
    """Slots times seconds."""
    seconds: float = 0.0
    core_seconds: float = 0.0
    num_core_calls: int = 0
    most_waiting: int = 0
    num_losses: int = 0
    num_orders: int = 0
    """What the controller assigned to agents."""
    repairs: list[float] = field(default_factory=list)
    """Seconds from the loss of an agent that served until another served the same."""
    asked: dict[int, int] = field(default_factory=dict)
    served: dict[int, int] = field(default_factory=dict)

    @property
    def cached_share(self) -> float:
        return self.num_cached / max(self.num_prompt, 1)

    @property
    def microseconds(self) -> float:
        """The core's time for a request, from its arrival to its end."""
        return self.core_seconds / max(self.num_requests, 1) * 1e6

    @property
    def microseconds_of_event(self) -> float:
        """The core's time for an event: a request has three and more."""
        return self.core_seconds / max(self.num_core_calls, 1) * 1e6

    @property
    def fairness(self) -> float:
        """Jain's index of the share of what each caller asked for that it got in time."""
        return jain([self.served.get(caller, 0) / asked for caller, asked in self.asked.items()])
