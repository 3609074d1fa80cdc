"""The engines of one place: which serves, which replaces it, which leave; what fits beside them.

Invariants: one engine serves at most, and one replaces it at most; together with those of the
host's other places they never need more memory than the host has.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from ...shared.messages import Issue
from ...shared.models.assignments import HOST, Assignment, MemoryPart, needs_reload
from ..models.model_file import AdaptersHere, ModelFile
from .decisions import (
    ChangeEngine,
    Decision,
    EndEngine,
    EngineId,
    RecallEngine,
    RetireEngine,
    StartEngine,
)
from .load_failures import too_large_for
from .room import Room

Role = Literal["serving", "replacing", "retiring"]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Adapters that the engine process could not load, by name, and why."""

    names: tuple[str, ...]
    issues: tuple[Issue, ...]


@dataclass(frozen=True, slots=True)
class Shortage:
    """Adapters of `desired` are not served, as `issues` say.

    `may_retry`: they are tried again as soon as they are here.
    """

    desired: Assignment
    issues: tuple[Issue, ...]
    may_retry: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """What to load. A fallback ran before, and was retired to make room.

    `is_beside`: only the file's adapters are to be loaded, in the engine that has the rest.
    `shortage`: the desired assignment has more adapters than this one.
    """

    assignment: Assignment
    file: ModelFile
    is_fallback: bool = False
    is_beside: bool = False
    shortage: Shortage | None = None

    def is_free(self, available: int | None) -> bool:
        """Whether it fits into `available` bytes, as far as both are known."""
        return available is None or self.file.needed is None or self.file.needed <= available


@dataclass(slots=True)
class Engine:
    """`load` is what it began with: `None` for the model that the agent is pinned to.

    `serves` is what it serves now, `asked` what it was asked for last; both began as its `load`'s.
    `adapters` are those of both, and of the `num_asked` changes that it has not answered. Once it
    is loaded, it has what is `held` of each memory, if it says so.
    """

    id: EngineId
    load: Load | None
    serves: Assignment | None
    asked: Assignment | None
    role: Role
    adapters: AdaptersHere
    is_loaded: bool = False
    has_joined: bool = False
    num_asked: int = 0
    shortage: Shortage | None = None
    held: tuple[MemoryPart, ...] = ()
    may_return: bool = False
    """Whether it was retired while it served, and has not ended yet."""
    is_recalled: bool = False
    """Whether it was recalled since, and has not joined the balancers again."""

    @property
    def is_fallback(self) -> bool:
        """Whether it brings back what ran before."""
        return self.load is not None and self.load.is_fallback

    def can_become(self, desired: Assignment, slots: int) -> bool:
        """Whether it can serve `desired` without a reload.

        There are `slots` where an assignment says none.
        """
        if self.load is None:
            return False
        loaded = self.load.assignment
        with_slots = replace(desired, slots=desired.slots or slots)
        return not needs_reload(loaded, with_slots, loaded_slots=loaded.slots or slots)

    def change(self, desired: Assignment) -> list[Decision]:
        """Have it serve `desired`, no adapter of which is missing, once it is loaded."""
        if self.asked == desired:
            return []
        self.asked = desired
        return [self._ask(desired)] if self.is_loaded else []

    def catch_up(self) -> list[Decision]:
        """It is loaded, with what it serves: have it serve what it was asked for since."""
        self.num_asked = 0
        return [] if self.asked is None or self.asked == self.serves else [self._ask(self.asked)]

    def _ask(self, desired: Assignment) -> ChangeEngine:
        self.num_asked += 1
        paths = tuple(each.path for each in self.adapters.of(desired))
        return ChangeEngine(self.id, desired, paths)

    def left_out(self, left_out: LeftOut) -> None:
        """It is loaded without some of the adapters that it was to serve."""
        serves = self.serves
        if serves is None:
            return
        issues = left_out.issues
        shortage = self.shortage or Shortage(serves, ())
        self.shortage = replace(shortage, issues=(*shortage.issues, *issues))
        left = tuple(one for one in serves.adapters or () if one.name not in left_out.names)
        self.serves = replace(serves, adapters=None if serves.adapters is None else left)
        if self.asked == serves:
            self.asked = self.serves

    def changed(self, assignment: Assignment) -> None:
        """It answers that it serves `assignment` now."""
        self.serves = assignment
        self._answered()

    def refused(self, assignment: Assignment) -> bool:
        """It answers that it does not serve `assignment`. Whether that was asked for last."""
        is_last = self.asked == assignment
        if is_last:
            self.asked = self.serves
        self._answered()
        return is_last

    def crashed(self) -> bool:
        """Its process ended. Whether it was about to serve other adapters: those are given up."""
        self.is_loaded = self.has_joined = False
        serves, asked = self.serves, self.asked
        if serves is None or asked is None or serves.adapters == asked.adapters:
            return False
        self.asked, self.num_asked = serves, 1
        self._answered()
        return True

    def _answered(self) -> None:
        """Adapters are forgotten when no answer is open that may bring them back."""
        self.num_asked -= 1
        if not self.num_asked:
            self.adapters.keep_only(*(each for each in (self.serves, self.asked) if each))

    @property
    def file(self) -> ModelFile | None:
        """What it has in memory, or is about to."""
        return None if self.load is None else self.load.file.with_adapters(self.adapters.all)

    @property
    def in_memory(self) -> ModelFile | None:
        """The same, with the memory that it really takes as far as that is known."""
        if self.load is None or not self.held:
            return self.file
        known = {part.device for part in self.held}
        host = (part for part in self.load.file.claims if part.device == HOST and HOST not in known)
        file = self.load.file.with_adapters(self.adapters.all)
        return replace(file, claims=(*self.held, *host))

    @property
    def served(self) -> Load | None:
        """What would bring back what it serves."""
        if self.load is None or self.serves is None:
            return None
        file = self.load.file.with_adapters(self.adapters.of(self.serves))
        return Load(self.serves, file)

    def retire(self, drain_timeout: float) -> Decision:
        """Have it finish what it has, within so many seconds, and end."""
        self.may_return = self.is_loaded and self.role == "serving"
        self.role, self.is_recalled = "retiring", False
        return RetireEngine(self.id, drain_timeout) if self.may_return else EndEngine(self.id)

    def recall(self) -> Decision:
        """It was retired and `may_return`: have it serve again."""
        self.role, self.may_return, self.is_recalled = "serving", False, True
        self.has_joined = False
        return RecallEngine(self.id)


class Engines:
    """`room` is the memory that they share with the host's other places."""

    def __init__(self, room: Room, ids: Iterator[int] | None = None) -> None:
        self._room = room
        room.enter(self)
        self._engines: dict[EngineId, Engine] = {}
        self._ids: Iterator[EngineId] = map(EngineId, ids or count(1))

    def __len__(self) -> int:
        """How many there are, those included that leave."""
        return len(self._engines)

    def __iter__(self) -> Iterator[Engine]:
        """All of them, oldest first."""
        return iter(self._engines.values())

    def __getitem__(self, id: EngineId) -> Engine:
        """The engine of that number."""
        return self._engines[id]

    def get(self, id: EngineId) -> Engine | None:
        """The engine of that number, if it is still here."""
        return self._engines.get(id)

    def pop(self, id: EngineId) -> Engine:
        """Its process has ended."""
        return self._engines.pop(id)

    def start(self, load: Load | None, role: Role) -> StartEngine:
        """Start one more engine."""
        id = next(self._ids)
        desired = None if load is None else load.assignment
        adapters = AdaptersHere(() if load is None else load.file.adapters)
        self._engines[id] = Engine(
            id,
            load,
            serves=desired,
            asked=desired,
            role=role,
            adapters=adapters,
            shortage=None if load is None else load.shortage,
        )
        return StartEngine(id, desired, None if load is None else load.file)

    # ---- which are here

    @property
    def serving(self) -> Engine | None:
        """The engine that serves, if one does."""
        return self._in_role("serving")

    @property
    def replacing(self) -> Engine | None:
        """The engine that is about to serve, if one is."""
        return self._in_role("replacing")

    @property
    def latest(self) -> Engine | None:
        """The engine that brings the assignment about, or did."""
        return self.replacing or self.serving

    @property
    def staying(self) -> list[Engine]:
        """The engines that do not end."""
        return [each for each in self if each.role != "retiring"]

    @property
    def leaving(self) -> list[Engine]:
        """The engines that finish what they have, and end."""
        return [each for each in self if each.role == "retiring"]

    @property
    def is_connected(self) -> bool:
        """Whether one that stays has joined the balancers."""
        return any(each.has_joined for each in self.staying)

    @property
    def is_connecting(self) -> bool:
        """Whether one that stays is loaded, and has not joined yet."""
        return any(each.is_loaded and not each.has_joined for each in self.staying)

    def that_can_become(self, desired: Assignment, slots: int) -> Engine | None:
        """One that can serve `desired` without loading the model; `slots` where it says none."""
        both = (each for each in (self.serving, self.replacing) if each is not None)
        return next((each for each in both if each.can_become(desired, slots)), None)

    def that_may_return(self, desired: Assignment, slots: int) -> Engine | None:
        """One that was retired and can serve `desired`, where none serves; as above."""
        if self.serving is not None:
            return None
        leaving = (each for each in self.leaving if each.may_return)
        return next((each for each in leaving if each.can_become(desired, slots)), None)

    def _in_role(self, role: Role) -> Engine | None:
        return next((each for each in self if each.role == role), None)

    # ---- room

    @property
    def files(self) -> list[ModelFile | None]:
        """What each has in memory; `None` where that is not known."""
        return [each.in_memory for each in self]

    @property
    def is_loading(self) -> bool:
        """Whether one loads its model for the first time."""
        return (engine := self.replacing) is not None and not engine.is_loaded

    @property
    def is_loading_elsewhere(self) -> bool:
        """Whether another place of the host loads a model."""
        return self._room.is_loading_beside(self)

    @property
    def has_neighbours(self) -> bool:
        """Whether other places of the host have engines."""
        return bool(self._room.beside(self))

    def too_large(self, file: ModelFile) -> Issue | None:
        """The issue of a file that the host's memory does not hold even alone."""
        return too_large_for(file, self._room.memory)

    def fits(self, load: Load, others: Iterable[Engine]) -> bool:
        """Whether the host's memory holds it together with `others` and all of other places."""
        beside = [*(each.in_memory for each in others), *self._room.beside(self)]
        is_modest = load.assignment.takes_what_is_left
        return self._room.holds(load.file, beside, takes_what_is_left=is_modest)

    def beside(self, id: EngineId) -> tuple[MemoryPart, ...]:
        """What the host's other engines have of each memory, or may take yet."""
        others = (each.in_memory for each in self if each.id != id)
        totals: Counter[str] = Counter()
        for file in (*others, *self._room.beside(self)):
            for part in () if file is None else file.claims:
                totals[part.device] += part.bytes
        return tuple(MemoryPart(device=name, bytes=size) for name, size in totals.items())

    def leave(self) -> None:
        """The place is given up; it has no engines."""
        self._room.leave(self)

    def check_integrity(self) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        roles = [each.role for each in self]
        if roles.count("serving") > 1 or roles.count("replacing") > 1:
            raise RuntimeError(f"too many engines: {roles}")
        if len(self) > 1:
            *others, last = self
            if last.load is None or not self.fits(last.load, others):
                raise RuntimeError("two engines where memory is short")
