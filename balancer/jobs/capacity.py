"""How many lines of a model may run at once: as many as it has slots, and a few that wait.

What waits takes the slot that frees without a moment's pause. For a while after somebody else asked
for the model, a slot is left free instead, so that the next one does not wait for a line to end.

Lines of a model that nobody knows do not start for `patience` seconds after the start, since agents
may be on their way; after that they end as such requests do. A model that was here once is waited
for.
"""

from collections.abc import Callable
from typing import Protocol

from ..fleet.caller import ANONYMOUS, Caller
from ..fleet.view import FleetTotals, ForegroundView, ModelView

LEAST_MARGIN = 2
MARGIN = 8
"""One in so many slots has another line waiting for it."""

LEAVES_FREE_FOR = 60.0
"""Seconds after somebody else's request for which slots are left free for the next."""

LEFT_FREE = 8
"""One in so many slots is left free then, one at least; of a single slot none is."""

QUERIES_AT_ONCE = 8
"""Lines at once of a model that only embeds or ranks, which takes no slots."""

MAX_SEEN = 1024
"""Models that are remembered as having been here."""

LEAST_LOADED = 64
"""Lines that are loaded ahead, beside twice those that may run."""


class Slots(Protocol):
    """What is asked of the fleet's views."""

    def num_slots_for(self, model: str | None) -> int: ...

    def model(self, name: str, caller: Caller = ANONYMOUS) -> ModelView | None: ...

    def foreground(self, model: str | None) -> ForegroundView: ...

    def totals(self) -> FleetTotals: ...


class Capacity:
    """Asks the fleet each time; nothing here costs its size."""

    def __init__(
        self, fleet: Slots, *, patience: float, now: float, clock: Callable[[], float]
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        self._patient_until = now + patience
        self._seen: dict[str | None, None] = {}

    def room(self, model: str | None) -> int:
        """Lines of `model` that may run at once."""
        slots = self._fleet.num_slots_for(model)
        if slots:
            if model not in self._seen and len(self._seen) < MAX_SEEN:
                self._seen[model] = None
            return self._room_in(slots, self._fleet.foreground(model))
        view = None if model is None else self._fleet.model(model)
        if view is None:
            return 0 if self.may_come(model) else 1
        is_only_asked = view.info.tasks and "generate" not in view.info.tasks
        return QUERIES_AT_ONCE if is_only_asked else 1

    def _room_in(self, slots: int, others: ForegroundView) -> int:
        is_recent = others.seconds_since is not None and others.seconds_since < LEAVES_FREE_FOR
        if slots > 1 and (others.num_here or is_recent):
            return max(1, slots - max(1, slots // LEFT_FREE) - others.num_here)
        waiting = min(max(LEAST_MARGIN, slots // MARGIN), self._fleet.totals().queue_limit // 4)
        return slots + waiting

    def may_come(self, model: str | None) -> bool:
        """Whether a model that nobody knows may be known again."""
        return self._clock() < self._patient_until or model in self._seen

    @property
    def deadline(self) -> float | None:
        """When lines of unknown models may start; `None` if that is over."""
        return self._patient_until if self._clock() < self._patient_until else None

    def loads_ahead(self) -> int:
        """Lines of one batch that are to wait in memory."""
        return 2 * self._fleet.totals().slots_total + LEAST_LOADED
