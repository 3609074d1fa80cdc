"""The budget of a step: how many seconds it may take, and what of other work fits into them.

A step beside streams should take at most `max_stall`, so that they do not stall longer. With
nothing generating it may take up to `PATIENCE` seconds: while a step is computed, the engine takes
neither new sequences nor cancels. How many prompt tokens fit is decided in `prefill`.
"""

from ..capacity import Capacity
from ..cost.move_cost import MoveCost
from ..cost.step_cost import StepCost
from ..speculation.drafter import StepPrices

PATIENCE = 2.0
"""Seconds for which commands may wait while there is nobody to stall."""

MARGIN = 0.92
"""The part of the bound that steps are sized for, because steps vary."""

PROPOSING = 0.5
"""The part of the bound that making proposals may take, where no prompts are read."""


class StepBudget:
    """Seconds, by what steps and copies have cost so far."""

    def __init__(self, capacity: Capacity, max_stall: float) -> None:
        self.max_stall = max_stall
        self._must_be_sure = not capacity.num_streams
        self.cost = StepCost(most_mixed=capacity.most_mixed, can_mix=not capacity.num_streams)
        self.moves = MoveCost(cell_bytes=capacity.cell_bytes, fixed_bytes=capacity.fixed_bytes)

    def seconds(self, num_generating: int) -> float:
        """What a step may take."""
        return MARGIN * (self.max_stall if num_generating else max(self.max_stall, PATIENCE))

    def moved_cells(self, num_generating: int) -> float:
        """How many cells' states may be copied before a step; infinite where that costs nothing."""
        return self.moves.within(self.seconds(num_generating), is_alone=not num_generating)

    def most_whole(self, num_generating: int) -> float:
        """How many cells may be copied before a step as one piece; no limit with nobody to stall.

        Those of a stream where that is likely to take no longer than a step, a state that goes to
        host memory where it surely does.
        """
        if not num_generating:
            return float("inf")
        seconds = self.seconds(num_generating)
        return self.moves.most_whole(seconds, is_sure=self._must_be_sure)

    def may_copy_whole(self, num_generating: int, num_cells: int) -> bool:
        """Whether the state of a sequence may be copied before a step, where it cannot be cut."""
        return not num_generating or self.moves.fits_whole(num_cells, self.seconds(num_generating))

    def draft_prices(self, num_generating: int, *, has_time: bool) -> StepPrices:
        """What a step of so many sequences takes. Proposing gets time where it `has_time`: what it
        takes would come on top of what prompts may take."""
        step = self.cost.generate(num_generating)
        return StepPrices(
            step=step,
            token=step * self.cost.draft_price(num_generating),
            num_generating=num_generating,
            most=PROPOSING * self.max_stall if has_time else 0.0,
        )
