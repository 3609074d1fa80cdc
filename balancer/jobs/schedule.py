"""Decides which line runs next, and how many lines run at once.

Each model can run a limited number of lines at once, which all owners share. The next line comes
from the owner with the fewest running lines, and there from the batch with the fewest. If several
lines begin alike, the first of this group runs alone, so that the others find its prefix cached.
If no other line could run, the lines of the group do not wait.

Invariants: a loaded line waits, runs, pauses or settles until `ended`; no model runs more lines
than allowed.
"""

import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, Protocol

from ..fleet.caller import ANONYMOUS, Caller
from ..fleet.view import FleetTotals, ForegroundView, ModelView
from .lines import Line

MAX_WARM = 4096
"""Maximum groups that are remembered as computed."""


class LineKey(NamedTuple):
    """One line of one batch."""

    batch: str
    number: int


Rooms = Callable[[str | None], int]
"""Returns the maximum lines of a model that may run at once."""

Groups = OrderedDict[bytes | None, deque[Line]]


@dataclass(slots=True)
class _Batch:
    """A batch. `chunk_of` maps each line that has not ended to its chunk."""

    owner: str | None = None
    waiting: dict[str | None, Groups] = field(default_factory=dict)
    running: dict[int, Line] = field(default_factory=dict)
    pausing: list[tuple[float, int, Line]] = field(default_factory=list)
    chunk_of: dict[int, int] = field(default_factory=dict)
    num_open: Counter[int] = field(default_factory=Counter)
    settling: set[int] = field(default_factory=set)
    paused_until: float = 0.0
    turn: int = 0

    @property
    def num_waiting(self) -> int:
        elsewhere = len(self.running) + len(self.pausing) + len(self.settling)
        return len(self.chunk_of) - elsewhere


class Schedule:
    """The lines of all batches. The caller supplies the time."""

    def __init__(self) -> None:
        self._batches: dict[str, _Batch] = {}
        self._running: Counter[str | None] = Counter()
        self._running_of: Counter[str | None] = Counter()
        """The number of running lines, by owner."""
        self._cold: Counter[bytes] = Counter()
        self._warm: OrderedDict[bytes, None] = OrderedDict()
        self._num_started = 0

    @property
    def num_running(self) -> int:
        """The number of running lines."""
        return self._running.total()

    @property
    def num_loaded(self) -> int:
        """The number of lines that have not ended."""
        return sum(len(batch.chunk_of) for batch in self._batches.values())

    def has(self, id: str) -> bool:
        """Return whether the schedule has the batch."""
        return id in self._batches

    def num_waiting(self, id: str) -> int:
        """Return how many lines of a batch could run if more were allowed."""
        return self._batches[id].num_waiting

    # ---- batches and lines come and go

    def add(self, id: str, owner: str | None = None) -> None:
        """Add a batch, without lines."""
        self._batches[id] = _Batch(owner=owner)

    def remove(self, id: str) -> None:
        """Remove a batch. Raises `ValueError` if one of its lines runs."""
        if self._batches.pop(id).running:
            raise ValueError(f"lines of {id} run")

    def loaded(self, id: str, chunk: int, lines: Sequence[Line]) -> None:
        """Add lines of a batch, which may run from now on."""
        batch = self._batches[id]
        for line in lines:
            batch.chunk_of[line.number] = chunk
            batch.num_open[chunk] += 1
            self._put(batch, line)

    def start_next(self, now: float, rooms: Rooms) -> tuple[LineKey, Line] | None:
        """Start the next line and return it; `None` if no line may run."""
        for batch in self._batches.values():
            self._wake(batch, now)
        chosen = self._choose(now, rooms)
        if chosen is None:
            return None
        id, model = chosen
        batch = self._batches[id]
        line = self._take(batch, model)
        self._num_started += 1
        batch.turn = self._num_started
        batch.running[line.number] = line
        self._running[model] += 1
        self._running_of[batch.owner] += 1
        if line.group is not None and line.group not in self._warm:
            self._cold[line.group] += 1
        return LineKey(id, line.number), line

    def settle(self, key: LineKey) -> None:
        """Stop counting a line as running, because it has a result or will get no result."""
        batch = self._batches[key.batch]
        self._stopped(batch, batch.running[key.number])
        batch.settling.add(key.number)

    def ended(self, key: LineKey) -> int | None:
        """End a settled line after its result was stored. Raises `KeyError` for any other line.

        Returns the chunk's number if all lines of the chunk have ended.
        """
        batch = self._batches[key.batch]
        batch.settling.remove(key.number)
        chunk = batch.chunk_of.pop(key.number)
        batch.num_open[chunk] -= 1
        if batch.num_open[chunk]:
            return None
        del batch.num_open[chunk]
        return chunk

    def again(self, key: LineKey, at: float, *, for_all: bool) -> None:
        """Let a line run again at the time `at`.

        If `for_all`, no line of the same batch starts before `at`.
        """
        batch = self._batches[key.batch]
        line = batch.running[key.number]
        self._stopped(batch, line)
        heapq.heappush(batch.pausing, (at, key.number, line))
        if for_all:
            batch.paused_until = max(batch.paused_until, at)

    def withdraw(self, id: str) -> list[Line]:
        """Settle and return all lines of a batch that do not run."""
        batch = self._batches[id]
        found = [line for groups in batch.waiting.values() for g in groups.values() for line in g]
        found += [line for _, _, line in batch.pausing]
        batch.waiting, batch.pausing = {}, []
        batch.settling |= {line.number for line in found}
        return found

    def next_deadline(self, now: float) -> float | None:
        """Return when `start_next` must be called again, if nothing happens before."""
        times = []
        for batch in self._batches.values():
            if batch.num_waiting and batch.paused_until > now:
                times.append(batch.paused_until)
            elif batch.pausing:
                times.append(max(batch.pausing[0][0], batch.paused_until))
        return min(times, default=None)

    # ---- inside

    def _put(self, batch: _Batch, line: Line, *, is_first: bool = False) -> None:
        groups = batch.waiting.setdefault(line.model, OrderedDict())
        lines = groups.setdefault(line.group, deque())
        if is_first:
            lines.appendleft(line)
            groups.move_to_end(line.group, last=False)
        else:
            lines.append(line)

    def _wake(self, batch: _Batch, now: float) -> None:
        while batch.pausing and batch.pausing[0][0] <= now:
            self._put(batch, heapq.heappop(batch.pausing)[2], is_first=True)

    def _choose(self, now: float, rooms: Rooms) -> tuple[str, str | None] | None:
        """Return the batch and the model of the next line."""
        found = [
            ((self._running_of[batch.owner], len(batch.running), batch.turn, id), model)
            for id, batch in self._batches.items()
            if batch.paused_until <= now
            for model in islice(self._with_room(batch.waiting, rooms), 1)
        ]
        if not found:
            return None
        (*_, id), chosen = min(found, key=lambda each: each[0])
        return id, chosen

    def _with_room(self, models: Iterable[str | None], rooms: Rooms) -> Iterator[str | None]:
        return (model for model in models if self._running[model] < rooms(model))

    def _take(self, batch: _Batch, model: str | None) -> Line:
        groups = batch.waiting[model]
        group = next(filter(self._may_run, groups), next(iter(groups)))
        lines = groups[group]
        line = lines.popleft()
        if not lines:
            del groups[group]
            if not groups:
                del batch.waiting[model]
        return line

    def _may_run(self, group: bytes | None) -> bool:
        """Return whether the group's prefix is cached, or no running line computes the prefix."""
        return group is None or group in self._warm or not self._cold[group]

    def _stopped(self, batch: _Batch, line: Line) -> None:
        del batch.running[line.number]
        self._running[line.model] -= 1
        self._running_of[batch.owner] -= 1
        if not self._running_of[batch.owner]:
            del self._running_of[batch.owner]
        if line.group is None:
            return
        if self._cold[line.group] > 0:
            self._cold[line.group] -= 1
        if not self._cold[line.group]:
            del self._cold[line.group]
        self._warm[line.group] = None
        self._warm.move_to_end(line.group)
        if len(self._warm) > MAX_WARM:
            self._warm.popitem(last=False)

    def check_integrity(self) -> None:
        """Raise if an invariant does not hold; for tests."""
        running: Counter[str | None] = Counter()
        running_of: Counter[str | None] = Counter()
        for id, batch in self._batches.items():
            waiting = [e for groups in batch.waiting.values() for g in groups.values() for e in g]
            numbers = [line.number for line in waiting]
            numbers += [*batch.running, *batch.settling]
            numbers += [number for _, number, _ in batch.pausing]
            if sorted(numbers) != sorted(batch.chunk_of):
                raise RuntimeError(f"{id}: lines are lost or there twice")
            if len(waiting) != batch.num_waiting:
                raise RuntimeError(f"{id}: waiting lines are miscounted")
            if Counter(batch.chunk_of.values()) != batch.num_open:
                raise RuntimeError(f"{id}: open lines are miscounted")
            if not all(groups and all(groups.values()) for groups in batch.waiting.values()):
                raise RuntimeError(f"{id}: an empty group")
            running += Counter(line.model for line in batch.running.values())
            running_of += Counter({batch.owner: len(batch.running)})
        if running_of != self._running_of:
            raise RuntimeError("running lines of an owner are miscounted")
        if running != +self._running:
            raise RuntimeError("running lines are miscounted")


LEAST_MARGIN = 2
MARGIN = 8
"""Per this many slots, one further line may run, so that it waits for a slot."""

LEAVES_FREE_FOR = 60.0
"""Seconds after another caller's request for which some slots stay free for the next request."""

LEFT_FREE = 8
"""Per this many slots, one slot stays free for other callers, but always at least one.

A model with a single slot keeps no slot free.
"""

QUERIES_AT_ONCE = 8
"""Maximum lines at once of a model that only embeds or ranks. Such a model has no slots."""

MAX_SEEN = 1024
"""Maximum models that are remembered as once known."""

LEAST_LOADED = 64
"""Lines loaded in advance, in addition to twice the number of slots."""


class Views(Protocol):
    """The part of the fleet's views that batches use."""

    def num_slots_for(self, model: str | None) -> int: ...

    def model(self, name: str, caller: Caller = ANONYMOUS) -> ModelView | None: ...

    def foreground(self, model: str | None) -> ForegroundView: ...

    def totals(self) -> FleetTotals: ...


class Capacity:
    """The maximum lines of a model that may run at once: its slots, and a few lines that wait.

    A waiting line takes a freed slot at once. After another caller has used the model, some slots
    stay free for a while, so that the next caller need not wait for the end of a line.

    For `patience` seconds after the start, lines of unknown models do not start, because agents
    may not have connected yet. Afterwards such lines end like other requests for unknown models.
    Lines wait for a model that was once known.

    Each call asks the fleet, at a cost that does not grow with the fleet.
    """

    def __init__(
        self, fleet: Views, *, patience: float, now: float, clock: Callable[[], float]
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        self._patient_until = now + patience
        self._seen: dict[str | None, None] = {}

    def room(self, model: str | None) -> int:
        """Return how many lines of `model` may run at once."""
        slots = self._fleet.num_slots_for(model)
        if slots:
            if model not in self._seen and len(self._seen) < MAX_SEEN:
                self._seen[model] = None
            return self._room_in(slots, self._fleet.foreground(model))
        view = None if model is None else self._fleet.model(model)
        if view is None:
            return 0 if self.may_come(model) else 1
        is_only_asked = view.info.tasks and "generate" not in view.info.tasks
        return QUERIES_AT_ONCE if is_only_asked else 1

    def _room_in(self, slots: int, others: ForegroundView) -> int:
        is_recent = others.seconds_since is not None and others.seconds_since < LEAVES_FREE_FOR
        if slots > 1 and (others.num_here or is_recent):
            return max(1, slots - max(1, slots // LEFT_FREE) - others.num_here)
        waiting = min(max(LEAST_MARGIN, slots // MARGIN), self._fleet.totals().queue_limit // 4)
        return slots + waiting

    def may_come(self, model: str | None) -> bool:
        """Return whether an unknown model may become known."""
        return self._clock() < self._patient_until or model in self._seen

    @property
    def deadline(self) -> float | None:
        """Return when lines of unknown models may start; `None` if the time has passed."""
        return self._patient_until if self._clock() < self._patient_until else None

    def loads_ahead(self) -> int:
        """Return how many lines of one batch should wait in memory."""
        return 2 * self._fleet.totals().slots_total + LEAST_LOADED
