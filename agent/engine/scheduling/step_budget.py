"""The budget of a step: how many seconds it may take, and which other work fits into them.

A step with generating sequences should take at most `max_stall`, so that their streams do not
stall longer. Without generating sequences a step may take up to `PATIENCE` seconds, because the
engine takes neither new sequences nor cancels during a step. `prefill` decides how many prompt
tokens fit.
"""

from ..capacity import Capacity
from ..cost.move_cost import MoveCost
from ..cost.step_cost import StepCost
from ..speculation.drafter import StepPrices

PATIENCE = 2.0
"""Maximum seconds for which commands wait if no sequence generates."""

MARGIN = 0.92
"""The share of the bound for which steps are sized, because steps vary."""

PROPOSING = 0.5
"""The share of the bound that drafting may take, if no prompts are read."""


class StepBudget:
    """Limits in seconds and cells, by the measured cost of steps and copies."""

    def __init__(self, capacity: Capacity, max_stall: float) -> None:
        self.max_stall = max_stall
        self._must_be_sure = not capacity.num_streams
        self.cost = StepCost(
            most_mixed=capacity.most_mixed,
            can_mix=not capacity.num_streams,
            can_draft=capacity.max_draft > 0,
        )
        self.moves = MoveCost(capacity.cell_bytes)

    def seconds(self, num_generating: int) -> float:
        """Return the seconds that a step may take."""
        return MARGIN * (self.max_stall if num_generating else max(self.max_stall, PATIENCE))

    def moved_cells(self, num_generating: int) -> float:
        """Return how many cells may be copied before a step; infinite if copies cost nothing."""
        return self.moves.within(self.seconds(num_generating), is_alone=not num_generating)

    def most_whole(self, num_generating: int) -> float:
        """Return how many cells a step may copy first as one piece; infinite without streams.

        If the copy is of a stream, it must be likely to take no longer than a step. If it is of a
        state that goes to host memory, it must be certain to.
        """
        if not num_generating:
            return float("inf")
        seconds = self.seconds(num_generating)
        return self.moves.most_whole(seconds, is_sure=self._must_be_sure)

    def draft_prices(self, num_generating: int, *, has_time: bool) -> StepPrices:
        """Return the cost of a step of this many sequences, and the time for drafts.

        Drafting gets time only if the step `has_time`: its time comes on top of the time for
        prompts.
        """
        step = self.cost.generate(num_generating)
        return StepPrices(
            step=step,
            token=step * self.cost.draft_price(num_generating),
            num_generating=num_generating,
            most=PROPOSING * self.max_stall if has_time else 0.0,
        )
