"""The engine's side of a drafter: asks it, reports sequences' gains, survives its failure.

A failed drafter costs only the drafts. The failure is logged with its traceback, operators see an
issue, and steps continue without proposals until the model is loaded again.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ..sequence import SequenceId, SequenceOutput
from ..step import Decoded, Outcome, Step
from .drafter import UNKNOWN_PRICES, Drafter, DraftRequest, Proposal, StepPrices

logger = logging.getLogger(__name__)

MOST_SURPRISE = 2.0
"""Maximum duration that a step counts with, in multiples of its expected duration."""

LEAST_SURPRISE = 0.75
"""Minimum duration that a step counts with, in multiples of a step without drafts."""


class Drafting:
    """Asks `drafter` for proposals; `None` makes none. `on_failure` gets the reason of a
    failure.
    """

    def __init__(
        self, drafter: Drafter | None, on_failure: Callable[[str], None] = lambda reason: None
    ) -> None:
        self._drafter = drafter
        self._on_failure = on_failure
        self._prices = UNKNOWN_PRICES

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices = UNKNOWN_PRICES
    ) -> Mapping[SequenceId, Proposal]:
        """Return proposals for the next step, by sequence."""
        if self._drafter is None or not requests:
            return {}
        self._prices = prices
        with self._boundary():
            return self._drafter.propose(requests, prices)
        return {}

    def observe(
        self, step: Step, outcome: Outcome, seconds: float, outputs: Sequence[SequenceOutput]
    ) -> None:
        """Report `step`, which took `seconds` and gave `outputs`."""
        if self._drafter is None:
            return
        with self._boundary():
            if step.num_drafted and isinstance(outcome, Decoded):
                self._settle(self._drafter, step, seconds - outcome.move_seconds, outputs)
            for output in outputs:
                if output.tokens:
                    self._drafter.observe(output.id, output.tokens)
                if output.end is not None:
                    self._drafter.forget(output.id)

    def forget(self, id: SequenceId) -> None:
        """Forget a sequence that ended or was dropped."""
        if self._drafter is None:
            return
        with self._boundary():
            self._drafter.forget(id)

    def _settle(
        self, drafter: Drafter, step: Step, seconds: float, outputs: Iterable[SequenceOutput]
    ) -> None:
        """Report the cost of drafts in `step`, and the seconds that right tokens saved."""
        cost = checking_cost(self._prices, step, seconds) / step.num_drafted
        token = self._prices.step / max(1, self._prices.num_generating)
        gained = {output.id: len(output.tokens) for output in outputs}
        for run in step.runs:
            if run.num_drafted:
                num_right = max(0, gained.get(run.id, 0) - 1)
                drafter.checked(run.id, cost * run.num_drafted, token * num_right)

    @contextmanager
    def _boundary(self) -> Iterator[None]:
        """Log an exception of the drafter raised in the block, and turn drafts off."""
        try:
            yield
        except Exception as error:  # sequences go on without drafts
            logger.exception("the drafter failed; generation continues without drafts")
            self._drafter = None
            self._on_failure(" ".join(f"{type(error).__name__}: {error}".split()))


def checking_cost(prices: StepPrices, step: Step, seconds: float) -> float:
    """Return the seconds that drafts added to `step`, which took `seconds`; 0 without drafts.

    Prices are estimates, and relying on them alone may lose time for long. Two or three more rows
    may fill another tile of a kernel, or make llama.cpp build its graph again. So the result
    compares the step's duration with the expected duration without drafts. Noise should cancel out
    over many steps, so a negative result counts too.

    If the step also prefills prompts, or generates for other sequences than `prices` are for, the
    result is the expected cost.
    """
    if not step.num_drafted:
        return 0.0
    thought = prices.token * step.num_drafted
    if step.num_prompt_tokens or step.num_generating != prices.num_generating:
        return thought
    most = MOST_SURPRISE * (prices.step + thought)
    return min(max(seconds, LEAST_SURPRISE * prices.step), most) - prices.step
