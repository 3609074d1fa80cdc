"""The worker's side of a drafter: asks it, tells it what sequences gained, survives its failure.

A drafter that fails costs nobody more than the drafts: the failure is logged with its traceback,
and steps go on without proposals until the agent starts again.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ..sequence import SequenceId, SequenceOutput
from .drafter import UNKNOWN_PRICES, Drafter, DraftRequest, Proposal, StepPrices

logger = logging.getLogger(__name__)


class Drafting:
    """Asks `drafter`; with `None` there are no proposals."""

    def __init__(self, drafter: Drafter | None) -> None:
        self._drafter = drafter

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices = UNKNOWN_PRICES
    ) -> Mapping[SequenceId, Proposal]:
        """Proposals for the next step, by sequence."""
        if self._drafter is None or not requests:
            return {}
        with self._boundary():
            return self._drafter.propose(requests, prices)
        return {}

    def observe(self, outputs: Iterable[SequenceOutput]) -> None:
        """A step gave `outputs`."""
        if self._drafter is None:
            return
        with self._boundary():
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

    @contextmanager
    def _boundary(self) -> Iterator[None]:
        """Whatever a drafter raises is logged, and ends the drafts alone."""
        try:
            yield
        except Exception:  # sequences go on without drafts
            logger.exception("the drafter failed; generation goes on without drafts")
            self._drafter = None
