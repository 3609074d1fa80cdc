"""The store's health, as seen by operators and by each task that uses the store.

Times are on the clock of the event loop.
"""

import asyncio
import logging
from collections.abc import Iterable

from ...shared.messages import Issue
from .records import StoreStatus

logger = logging.getLogger(__name__)

LOST = "records that could not be written are lost; the balancer's log names them"
"""The `fault` of a store that refuses some writes."""


class StoreHealth:
    """The health of a store for one task.

    The task reports the result of each use. Each change is logged once.
    """

    def __init__(self, store: str) -> None:
        """Start with a healthy store. `store` is the name of the store in the log."""
        self.store = store
        self._away_since: float | None = None
        self._problem: str | None = None
        self._fault: str | None = None
        self.num_lost = 0
        """Number of rows that were never written: the store refused them, or too many waited."""

    def status(self, num_pending: int = 0) -> StoreStatus:
        """Return the store's status after its last use."""
        return StoreStatus(self._away_since, self._problem, num_pending, self.num_lost, self._fault)

    @property
    def is_away(self) -> bool:
        """Whether the store could not be reached."""
        return self._away_since is not None

    @property
    def is_failing(self) -> bool:
        """Whether the store refused a part of the last write."""
        return self._fault is not None

    def went_away(self, problem: object) -> None:
        """Record that the store could not be reached."""
        self._problem = str(problem)
        if self._away_since is None:
            self._away_since = asyncio.get_running_loop().time()
            logger.warning("%s is away: %s", self.store, problem)

    def answered(self) -> None:
        """Record that the store was reached, even if the store refused something."""
        if self._away_since is not None:
            logger.info("%s is back", self.store)
        self._away_since = self._problem = None

    def failed(self, num_lost: int = 0) -> None:
        """Record that a write failed for good. `num_lost` rows are lost."""
        self.num_lost += num_lost
        self._fault = LOST

    def wrote(self) -> None:
        """Record that a complete write succeeded."""
        self._fault = None
        self.answered()


def combined(statuses: Iterable[StoreStatus]) -> StoreStatus:
    """Return the status over all writers. The store is away if it is away for any writer."""
    statuses = list(statuses)
    first = min(
        (each for each in statuses if each.away_since is not None),
        key=lambda each: each.away_since or 0.0,
        default=StoreStatus(),
    )
    return StoreStatus(
        first.away_since,
        first.problem,
        sum(each.num_pending for each in statuses),
        sum(each.num_dropped for each in statuses),
        next((each.fault for each in statuses if each.fault is not None), None),
    )


def issues(status: StoreStatus) -> tuple[Issue, ...]:
    """Return the issues of the store, with advice for operators."""
    if status.is_away:
        message = f"the store is away: {status.problem}"
        hint = "changes are refused until it is back; streams go on"
        return (Issue(code="store_away", message=message, hint=hint),)
    if status.fault is not None:
        message = "the store does not take all that is written to it"
        return (Issue(code="store_failing", message=message, hint=status.fault),)
    return ()
