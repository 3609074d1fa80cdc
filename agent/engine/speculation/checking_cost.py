"""What computing drafted tokens added to a step, as it was measured.

Prices are estimates, and whoever relies on them alone may lose for long: two or three rows more may
fill another tile of a kernel, or make llama.cpp build its graph anew. So what the step took counts,
against what it was thought to take without drafts. Noise is to cancel out over many steps, so less
than that counts, too.
"""

from ..step import Step
from .drafter import StepPrices

MOST_SURPRISE = 2.0
"""A step counts as at most so many times what it was thought to take: the machine was busy then."""

LEAST_SURPRISE = 0.75
"""And as at least so much of a step without drafts."""


def checking_cost(prices: StepPrices, step: Step, seconds: float) -> float:
    """The seconds that the drafts of `step`, which took `seconds`, added to it.

    Where other sequences generate in it than `prices` are for, or prompts are read besides, it is
    what the drafts were thought to take. Nothing without drafts.
    """
    if not step.num_drafted:
        return 0.0
    thought = prices.token * step.num_drafted
    if step.num_prompt_tokens or step.num_generating != prices.num_generating:
        return thought
    most = MOST_SURPRISE * (prices.step + thought)
    return min(max(seconds, LEAST_SURPRISE * prices.step), most) - prices.step
