"""Counts the refusals of each caller, and decides which get a line in the log or a diary entry.

The log gets at most one line a second for each caller, door and kind. The diary gets an entry for
a caller that is refused `GOES_ON` times within a minute. An agent gets an entry at once, because
agents connect seldom. The diary gets at most one entry an hour for each caller and door, and
`MAX_ENTRIES` an hour in all. A caller has stopped if it was not refused for `STOPPED` seconds.

Invariant: at most `MAX_CALLERS` are counted. Further callers count together at each door, as
`OTHERS`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Door = Literal["inference", "management", "log_in", "agents", "tls"]

GOES_ON = 10
MINUTE, HOUR = 60.0, 3600.0
STOPPED = 5 * MINUTE
MAX_CALLERS = 1024
MAX_ENTRIES = 64
OTHERS = "many addresses"


@dataclass(slots=True)
class _RefusedCaller:
    """One caller: the beginning of the count, the number of refusals, and its last diary entry.

    `went_on_at` is the time of its last refusal after it had been refused too often.
    """

    since: float
    num: int = 0
    noted_at: float | None = None
    went_on_at: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether to log a refusal, and the number of refusals for a diary entry, if any."""

    is_logged: bool
    num_noted: int = 0


class Refusals:
    """The refused callers. `now` is in seconds, on a clock that never goes back."""

    def __init__(self) -> None:
        self._callers: dict[
            tuple[Door, str], _RefusedCaller
        ] = {}  # those that are counted longest first
        self._logged: dict[tuple[str, str, str], float] = {}  # oldest first
        self._noted: list[float] = []
        self._forgot_at = -1.0

    def __len__(self) -> int:
        return len(self._callers)

    def refused(self, door: Door, kind: str, who: str, now: float) -> Outcome:
        """Count a refusal of the caller with the address `who`."""
        self._forget(now)
        if (door, who) not in self._callers and len(self._callers) >= MAX_CALLERS:
            who = OTHERS
        caller = self._callers.setdefault((door, who), _RefusedCaller(now))
        if now - caller.since >= MINUTE:
            caller.since, caller.num = now, 0
        caller.num += 1
        is_worth_it = caller.num >= (1 if door == "agents" else GOES_ON)
        if is_worth_it or caller.went_on_at is not None:
            caller.went_on_at = now
        return Outcome(
            self._is_logged((door, kind, who), now),
            caller.num if is_worth_it and self._is_noted(caller, now) else 0,
        )

    def going_on(self, now: float) -> Mapping[Door, Sequence[str]]:
        """Return for each door the callers that are refused repeatedly, the first counted in
        front.
        """
        found: dict[Door, list[str]] = {}
        for (door, who), caller in self._callers.items():
            if caller.went_on_at is not None and now - caller.went_on_at < STOPPED:
                found.setdefault(door, []).append(who)
        return found

    def _forget(self, now: float) -> None:
        """Forget callers that have stopped, if too many are counted."""
        if len(self._callers) < MAX_CALLERS or now - self._forgot_at < 1.0:
            return
        self._forgot_at = now
        over = [
            caller
            for caller, each in self._callers.items()
            if now - each.since >= (MINUTE if each.noted_at is None else HOUR)
        ]
        for caller in over:
            del self._callers[caller]

    def _is_logged(self, what: tuple[str, str, str], now: float) -> bool:
        while self._logged and now - self._logged[oldest := next(iter(self._logged))] >= 1.0:
            del self._logged[oldest]
        if what in self._logged or len(self._logged) >= MAX_CALLERS:
            return False
        self._logged[what] = now
        return True

    def _is_noted(self, caller: _RefusedCaller, now: float) -> bool:
        if caller.noted_at is not None and now - caller.noted_at < HOUR:
            return False
        self._noted = [at for at in self._noted if now - at < HOUR]
        if len(self._noted) >= MAX_ENTRIES:
            return False
        self._noted.append(now)
        caller.noted_at = now
        return True

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; for tests."""
        if (
            len(self._callers) > MAX_CALLERS + len(get_args(Door))
            or len(self._logged) > MAX_CALLERS
        ):
            raise RuntimeError("too many callers are counted")
        if len(self._noted) > MAX_ENTRIES:
            raise RuntimeError("too many entries of an hour are known")
