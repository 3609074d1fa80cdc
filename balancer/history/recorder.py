"""Recorders of events: one counts for the history, and one passes events to several recorders."""

from collections.abc import Callable, Iterator, Sequence

from ..fleet.recorder import Ending, MoveReason, Origin, Recorder
from ..fleet.view import FleetTotals
from ..store.records import DAY
from .endings import Endings, ended_request
from .series import OTHERS, Levels, Step, bounded
from .sums import StepTally
from .usage import UsageLedger

MAX_TALLIES = 4096
"""The maximum agents, and the maximum models, that are counted separately in a step."""

_OF_NO_MODEL = frozenset({"model_not_found", "shutting_down"})
"""Error codes of requests whose model may be any text from a client."""


class HistoryRecorder:
    """Counts events by agent and by model until `close_step`.

    `clock` returns seconds since 1970. `here` returns this balancer's name, or `None` if there are
    no other balancers.
    """

    def __init__(self, endings: Endings, usage: UsageLedger, clock: Callable[[], float]) -> None:
        self.here: Callable[[], str | None] = lambda: None
        self._endings = endings
        self._usage = usage
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._fleet = StepTally()
        self._agents: dict[str, StepTally] = {}
        self._models: dict[str, StepTally] = {}

    def close_step(self, at: int, seconds: int, totals: FleetTotals) -> Step:
        """Return the counts since the last call as a step of `seconds` that began at `at`."""
        step = Step(
            at=at,
            seconds=seconds,
            levels=Levels(
                queue_depth=totals.queue_depth,
                queue_peak=totals.queue_depth,
                slots_busy=totals.slots_busy,
                slots_total=totals.slots_total,
                agents=totals.num_agents,
            ),
            fleet=self._fleet.sums(),
            agents=bounded({name: tally.sums() for name, tally in self._agents.items()}),
            models=bounded({name: tally.sums() for name, tally in self._models.items()}),
        )
        self._begin()
        return step

    def first_token(self, seconds: float, origin: Origin) -> None:
        for tally in self._of(*origin):
            tally.first_token(seconds)

    def between_tokens(self, gaps: Sequence[float], origin: Origin) -> None:
        if gaps:
            for tally in self._of(*origin):
                tally.between_tokens(gaps)

    def tokens(self, count: int, origin: Origin) -> None:
        for tally in self._of(*origin):
            tally.tokens(count)

    def moved(self, reason: MoveReason, origin: Origin) -> None:
        """Ignore the event, because the record of the end has the number of moves."""

    def ended(self, ending: Ending) -> None:
        model = "" if ending.code in _OF_NO_MODEL else ending.model
        for tally in self._of(ending.agent or "", model or ""):
            tally.ended(ending)
        now = self._clock()
        self._endings.add(ended_request(ending, now, self.here()))
        self._usage.ended(ending, int(now) // DAY)

    def _of(self, agent: str, model: str) -> Iterator[StepTally]:
        yield self._fleet
        if agent:
            yield _tally(self._agents, agent)
        if model:
            yield _tally(self._models, model)


def _tally(tallies: dict[str, StepTally], name: str) -> StepTally:
    found = tallies.get(name)
    if found is None:
        known = name if len(tallies) < MAX_TALLIES else OTHERS
        found = tallies.setdefault(known, StepTally())
    return found


class Recorders:
    """Passes each event to all `recorders` in order."""

    def __init__(self, *recorders: Recorder) -> None:
        self._recorders = recorders

    def first_token(self, seconds: float, origin: Origin) -> None:
        for each in self._recorders:
            each.first_token(seconds, origin)

    def between_tokens(self, gaps: Sequence[float], origin: Origin) -> None:
        for each in self._recorders:
            each.between_tokens(gaps, origin)

    def tokens(self, count: int, origin: Origin) -> None:
        for each in self._recorders:
            each.tokens(count, origin)

    def moved(self, reason: MoveReason, origin: Origin) -> None:
        for each in self._recorders:
            each.moved(reason, origin)

    def ended(self, ending: Ending) -> None:
        for each in self._recorders:
            each.ended(ending)
