"""The worker's side of a drafter: asks it, tells it what sequences gained, survives its failure.

A drafter that fails costs nobody more than the drafts: the failure is logged with its traceback,
operators see an issue, and steps go on without proposals until the model is loaded again.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ..sequence import SequenceId, SequenceOutput
from ..step import Decoded, Outcome, Step
from .checking_cost import checking_cost
from .drafter import UNKNOWN_PRICES, Drafter, DraftRequest, Proposal, StepPrices

logger = logging.getLogger(__name__)


class Drafting:
    """Asks `drafter`; with `None` there are no proposals. `on_failure` is told why it failed."""

    def __init__(
        self, drafter: Drafter | None, on_failure: Callable[[str], None] = lambda reason: None
    ) -> None:
        self._drafter = drafter
        self._on_failure = on_failure
        self._prices = UNKNOWN_PRICES

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices = UNKNOWN_PRICES
    ) -> Mapping[SequenceId, Proposal]:
        """Proposals for the next step, by sequence."""
        if self._drafter is None or not requests:
            return {}
        self._prices = prices
        with self._boundary():
            return self._drafter.propose(requests, prices)
        return {}

    def observe(
        self, step: Step, outcome: Outcome, seconds: float, outputs: Sequence[SequenceOutput]
    ) -> None:
        """`step` took `seconds` and gave `outputs`."""
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
        """A sequence is over, or was dropped."""
        if self._drafter is None:
            return
        with self._boundary():
            self._drafter.forget(id)

    def _settle(
        self, drafter: Drafter, step: Step, seconds: float, outputs: Iterable[SequenceOutput]
    ) -> None:
        """Tell what drafts cost in `step`, and what they brought: a token saves its part of one."""
        cost = checking_cost(self._prices, step, seconds) / step.num_drafted
        token = self._prices.step / max(1, self._prices.num_generating)
        gained = {output.id: len(output.tokens) for output in outputs}
        for run in step.runs:
            if run.num_drafted:
                num_right = max(0, gained.get(run.id, 0) - 1)
                drafter.checked(run.id, cost * run.num_drafted, token * num_right)

    @contextmanager
    def _boundary(self) -> Iterator[None]:
        """Whatever a drafter raises is logged, and ends the drafts alone."""
        try:
            yield
        except Exception as error:  # sequences go on without drafts
            logger.exception("the drafter failed; generation goes on without drafts")
            self._drafter = None
            self._on_failure(" ".join(f"{type(error).__name__}: {error}".split()))
