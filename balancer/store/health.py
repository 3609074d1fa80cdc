"""How writing to the store goes, as each task that writes there sees it, and as operators see it.

Times are on the clock of the event loop.
"""

from collections.abc import Iterable

from ...shared.messages import Issue
from .records import StoreStatus

LOST = "what cannot be written was lost; the balancer's log says what"
"""`fault` of a store that takes writes, but not all of them."""


class WriteHealth:
    """Of one task that writes. It reports how each write ended."""

    def __init__(self) -> None:
        self._away_since: float | None = None
        self._problem: str | None = None
        self._fault: str | None = None
        self.num_lost = 0
        """Rows that were never written: they cannot be, or too many waited."""

    def status(self, num_pending: int = 0) -> StoreStatus:
        """As of the last write."""
        return StoreStatus(self._away_since, self._problem, num_pending, self.num_lost, self._fault)

    def went_away(self, problem: str, now: float) -> bool:
        """The store could not be reached; whether that is news."""
        self._problem = problem
        if self._away_since is not None:
            return False
        self._away_since = now
        return True

    def answered(self) -> bool:
        """The store was reached, whatever it said; whether it had been away."""
        was_away = self._away_since is not None
        self._away_since = self._problem = None
        return was_away

    def failed(self, num_lost: int = 0) -> None:
        """A write failed, and is not tried again; so many rows are lost with it."""
        self.num_lost += num_lost
        self._fault = LOST

    def wrote(self) -> bool:
        """A write succeeded as a whole; whether the store had been away."""
        self._fault = None
        return self.answered()


def combined(statuses: Iterable[StoreStatus]) -> StoreStatus:
    """How the store is by what all that write see: away if it is for one of them."""
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
    """What operators should do about the store."""
    if status.is_away:
        message = f"the store is away: {status.problem}"
        hint = "changes are refused until it is back; streams go on"
        return (Issue(code="store_away", message=message, hint=hint),)
    if status.fault is not None:
        message = "the store does not take all that is written to it"
        return (Issue(code="store_failing", message=message, hint=status.fault),)
    return ()
