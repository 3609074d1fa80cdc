"""The steps of the history: the last hour in seconds, and the last day in minutes.

A step has the sums of the whole fleet, of each agent and of each model. It names at most
`MAX_NAMES` agents and models, and sums the others under `OTHERS`. Times are whole seconds since
1970.

Invariants: steps are in order of time; minutes are complete sums of seconds; no series is longer
than `STEPS_KEPT`.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from pydantic import TypeAdapter, ValidationError

from ...shared.strict import LAZY
from ..store.records import STEPS_KEPT, SavedStep, StepWidth
from .sums import Sums, add

MAX_NAMES = 64
OTHERS = ""
MINUTE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The levels at the end of a step.

    A step that joins several steps has their means, and the maximum of the queue.
    """

    queue_depth: float = 0.0
    queue_peak: int = 0
    slots_busy: float = 0.0
    slots_total: float = 0.0
    agents: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of `seconds` that began at `at`, with the agents and models that had events."""

    __pydantic_config__ = LAZY

    at: int
    seconds: int
    levels: Levels
    fleet: Sums
    agents: dict[str, Sums] = field(default_factory=dict)
    models: dict[str, Sums] = field(default_factory=dict)


def join(steps: Sequence[Step], at: int) -> Step:
    """Return one step that began at `at` and joins `steps`, which must not be empty."""
    return Step(
        at=at,
        seconds=sum(step.seconds for step in steps),
        levels=_mean([step.levels for step in steps]),
        fleet=add([step.fleet for step in steps]),
        agents=_by_name([step.agents for step in steps]),
        models=_by_name([step.models for step in steps]),
    )


def beside(steps: Sequence[Step]) -> Step:
    """Return the sum of the steps of several balancers in the same seconds.

    Queues and taken slots are added up; all balancers see the same agents. The peak is the sum of
    the peaks, which is an upper bound for steps longer than a second.
    """
    if len(steps) == 1:
        return steps[0]
    return Step(
        at=steps[0].at,
        seconds=max(step.seconds for step in steps),
        levels=_added(steps),
        fleet=add([step.fleet for step in steps]),
        agents=_by_name([step.agents for step in steps]),
        models=_by_name([step.models for step in steps]),
    )


def bounded(sums: dict[str, Sums]) -> dict[str, Sums]:
    """Return the `MAX_NAMES` largest sums by name, and the total of the others."""
    if len(sums) <= MAX_NAMES:
        return sums
    names = sorted(sums, key=lambda name: (name == OTHERS, -_weight(sums[name])))
    kept = {name: sums[name] for name in names[: MAX_NAMES - 1]}
    return {**kept, OTHERS: add([sums[name] for name in names[MAX_NAMES - 1 :]])}


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected steps, oldest first, and the length of the longest step."""

    steps: tuple[Step, ...]
    width: int


class Series:
    """The steps in seconds and the steps in minutes."""

    def __init__(self) -> None:
        self.seconds: deque[Step] = deque(maxlen=STEPS_KEPT[1])
        self.minutes: deque[Step] = deque(maxlen=STEPS_KEPT[60])

    def restore(self, seconds: Iterable[Step], minutes: Iterable[Step]) -> None:
        """Restore stored steps. Call this method before `add`."""
        self.seconds.extend(seconds)
        self.minutes.extend(minutes)

    def add(self, step: Step) -> list[Step]:
        """Add a step of seconds, and return the minutes that the step completes.

        A step that is older than the last step is ignored.
        """
        if self.seconds and step.at <= self.seconds[-1].at:
            return []
        whole = self._whole_minutes(step.at)
        self.minutes.extend(whole)
        self.seconds.append(step)
        return whole

    def since(self, at: int) -> Selection:
        """Return all steps since `at`: minutes before the first second, then seconds."""
        minutes, seconds = _from(reversed(self.minutes), at), _from(reversed(self.seconds), at)
        if self.seconds:
            begin = self.seconds[0].at
            minutes = [step for step in minutes if step.at + MINUTE <= begin]
        return Selection((*minutes, *seconds), MINUTE if minutes else 1)

    def latest_seconds(self, most: int, since: int) -> list[Step]:
        """Return the last `most` steps of seconds since `since`, oldest first."""
        return _from(islice(reversed(self.seconds), most), since)

    def begun_minutes(self) -> list[Step]:
        """Return the step of the present minute so far."""
        return self._whole_minutes(self.seconds[-1].at + MINUTE) if self.seconds else []

    def _whole_minutes(self, now: int) -> list[Step]:
        """Return the minutes that have ended at `now` and are not in the series of minutes yet."""
        begin = self.minutes[-1].at + MINUTE if self.minutes else 0
        waiting: dict[int, list[Step]] = {}
        for step in _from(reversed(self.seconds), begin):
            waiting.setdefault(step.at - step.at % MINUTE, []).append(step)
        this_minute = now - now % MINUTE
        return [join(steps, at) for at, steps in waiting.items() if at < this_minute]

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        for steps in (self.seconds, self.minutes):
            times = [step.at for step in steps]
            if times != sorted(set(times)):
                raise RuntimeError("steps are not in the order of their times")
        if any(step.at % MINUTE for step in self.minutes):
            raise RuntimeError("a minute does not begin where minutes begin")


def _from(latest_first: Iterable[Step], at: int) -> list[Step]:
    """Return the steps since `at`, oldest first, at a cost of their number."""
    found: list[Step] = []
    for step in latest_first:
        if step.at < at:
            break
        found.append(step)
    found.reverse()
    return found


def _by_name(parts: Sequence[dict[str, Sums]]) -> dict[str, Sums]:
    found: dict[str, list[Sums]] = {}
    for part in parts:
        for name, sums in part.items():
            found.setdefault(name, []).append(sums)
    return bounded({name: add(each) for name, each in found.items()})


def _mean(levels: Sequence[Levels]) -> Levels:
    num = len(levels)
    return Levels(
        queue_depth=sum(each.queue_depth for each in levels) / num,
        queue_peak=max(each.queue_peak for each in levels),
        slots_busy=sum(each.slots_busy for each in levels) / num,
        slots_total=sum(each.slots_total for each in levels) / num,
        agents=sum(each.agents for each in levels) / num,
    )


def _added(steps: Sequence[Step]) -> Levels:
    """Return the levels of joined steps. Longer steps count more in the means."""
    seconds = max(step.seconds for step in steps)
    shares = [(step.levels, step.seconds / seconds) for step in steps]
    return Levels(
        queue_depth=sum(levels.queue_depth * share for levels, share in shares),
        queue_peak=sum(levels.queue_peak for levels, _ in shares),
        slots_busy=sum(levels.slots_busy * share for levels, share in shares),
        slots_total=max(levels.slots_total for levels, _ in shares),
        agents=max(levels.agents for levels, _ in shares),
    )


def _weight(sums: Sums) -> int:
    return sums.completion_tokens + sums.prompt_tokens + sum(sums.ended.values())


_STEP = TypeAdapter(Step)


def to_saved(step: Step, width: StepWidth, source: str = "") -> SavedStep:
    """Return `step` as the store saves it. `source` is the run that counted the step."""
    return SavedStep(width, step.at, _STEP.dump_json(step).decode(), source)


def from_saved(saved: SavedStep) -> Step | None:
    """Return the step, or `None` if another version wrote it and this version cannot read it."""
    try:
        step = _STEP.validate_json(saved.document)
    except ValidationError:
        return None
    return step if step.at == saved.at else None
