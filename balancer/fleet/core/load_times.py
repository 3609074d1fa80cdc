"""How long agents will still take to load: from how fast they got on in the phase that they are in.

Invariant: a mark is of a connected agent that fetches or loads.
"""

from dataclasses import dataclass

from ....shared.inference.values import MOST_SECONDS, within
from ....shared.models.assignments import Phase, Work
from ..decisions import LinkId

LEAST_SHARE = 0.02
"""Share of a phase that has to be done before the rest of it is estimated."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """Where an agent was when its phase was first seen."""

    revision: int
    phase: Phase
    at: float
    progress: float


class LoadTimes:
    """Told of every report of an agent."""

    def __init__(self) -> None:
        self._marks: dict[LinkId, _Mark] = {}

    def __len__(self) -> int:
        return len(self._marks)

    def reported(self, link: LinkId, work: Work | None, now: float) -> None:
        """An agent says how far it is."""
        if work is None or work.phase not in ("fetching", "loading"):
            self.left(link)
            return
        mark = self._marks.get(link)
        if mark is None or (mark.revision, mark.phase) != (work.revision, work.phase):
            self._marks[link] = _Mark(work.revision, work.phase, now, work.progress or 0.0)

    def left(self, link: LinkId) -> None:
        """An agent is gone."""
        self._marks.pop(link, None)

    def seconds_left(self, link: LinkId, work: Work | None, now: float) -> float | None:
        """Seconds until the phase is over; `None` where nobody knows.

        Of an agent that fetches, the time to load what it fetches is not known, so not included.
        """
        mark = self._marks.get(link)
        if mark is None or work is None:
            return None
        if work.download is not None and work.download.seconds_left is not None:
            return within(work.download.seconds_left, 0.0, MOST_SECONDS)
        done, elapsed = (work.progress or 0.0) - mark.progress, now - mark.at
        if not (done >= LEAST_SHARE and elapsed > 0):
            return None
        return within(elapsed * (1 - (work.progress or 0.0)) / done, 0.0, MOST_SECONDS)
