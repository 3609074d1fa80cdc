"""The engines of one place: their roles, and whether another model fits in memory with them."""

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
    """Adapters that the engine process could not load, by name, with the reasons."""

    names: tuple[str, ...]
    issues: tuple[Issue, ...]


@dataclass(frozen=True, slots=True)
class Shortage:
    """Adapters of `desired` that are not served; `issues` say why.

    `may_retry`: the adapters are tried again once their files are on this host.
    """

    desired: Assignment
    issues: tuple[Issue, ...]
    may_retry: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """A model to load. `is_fallback`: the model ran before, and was retired to free memory.

    `is_beside`: load only the file's adapters, in the engine that already has the model.
    `shortage`: adapters that the desired assignment has and this load lacks.
    """

    assignment: Assignment
    file: ModelFile
    is_fallback: bool = False
    is_beside: bool = False
    shortage: Shortage | None = None

    def is_free(self, available: int | None) -> bool:
        """Return whether the model fits into `available` bytes, or a size is unknown."""
        return available is None or self.file.needed is None or self.file.needed <= available


@dataclass(slots=True)
class Engine:
    """One engine. `load` is the load that started it; `None` for a pinned model.

    `serves` is the assignment that the engine serves, and `asked` the assignment that it was last
    asked to serve. Both start as the assignment of `load`. `adapters` are the adapters of both,
    and of the `num_asked` changes without an answer. `held` is the memory that the loaded engine
    reported, if any.
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
    """True if the engine was retired while it served, and has not ended yet."""
    is_recalled: bool = False
    """True if the engine was recalled after that, and has not joined the balancers again."""

    @property
    def is_fallback(self) -> bool:
        """Return whether the engine restores the model that ran before.

        `slots` applies to assignments that do not set them.
        """
        return self.load is not None and self.load.is_fallback

    def can_become(self, desired: Assignment, slots: int) -> bool:
        """Return whether the engine can serve `desired` without a reload.

        `slots` applies to assignments that do not set them.
        """
        if self.load is None:
            return False
        loaded = self.load.assignment
        with_slots = replace(desired, slots=desired.slots or slots)
        return not needs_reload(loaded, with_slots, loaded_slots=loaded.slots or slots)

    def change(self, desired: Assignment) -> list[Decision]:
        """Ask the engine to serve `desired` once it is loaded. All adapters must be on this
        host.
        """
        if self.asked == desired:
            return []
        self.asked = desired
        return [self._ask(desired)] if self.is_loaded else []

    def catch_up(self) -> list[Decision]:
        """Ask the engine, which is now loaded, to serve the assignment ordered in the meantime."""
        self.num_asked = 0
        return [] if self.asked is None or self.asked == self.serves else [self._ask(self.asked)]

    def _ask(self, desired: Assignment) -> ChangeEngine:
        self.num_asked += 1
        paths = tuple(each.path for each in self.adapters.of(desired))
        return ChangeEngine(self.id, desired, paths)

    def left_out(self, left_out: LeftOut) -> None:
        """Record that the engine was loaded without some of its adapters."""
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
        """Record that the engine answered that it serves `assignment` now."""
        self.serves = assignment
        self._answered()

    def refused(self, assignment: Assignment) -> bool:
        """Record that the engine refused `assignment`; return whether that was the last assignment
        asked.
        """
        is_last = self.asked == assignment
        if is_last:
            self.asked = self.serves
        self._answered()
        return is_last

    def crashed(self) -> bool:
        """Record that the process ended; return whether a change of adapters is given up."""
        self.is_loaded = self.has_joined = False
        serves, asked = self.serves, self.asked
        if serves is None or asked is None or serves.adapters == asked.adapters:
            return False
        self.asked, self.num_asked = serves, 1
        self._answered()
        return True

    def _answered(self) -> None:
        """Forget adapters that are not needed by any change without an answer."""
        self.num_asked -= 1
        if not self.num_asked:
            self.adapters.keep_only(*(each for each in (self.serves, self.asked) if each))

    @property
    def file(self) -> ModelFile | None:
        """The file that the engine has in memory, or will load."""
        return None if self.load is None else self.load.file.with_adapters(self.adapters.all)

    @property
    def in_memory(self) -> ModelFile | None:
        """The same file with the memory that the engine really uses, as far as known."""
        if self.load is None or not self.held:
            return self.file
        known = {part.device for part in self.held}
        host = (part for part in self.load.file.claims if part.device == HOST and HOST not in known)
        file = self.load.file.with_adapters(self.adapters.all)
        return replace(file, claims=(*self.held, *host))

    @property
    def served(self) -> Load | None:
        """The load that would restore the engine's assignment; `None` for a pinned model."""
        if self.load is None or self.serves is None:
            return None
        file = self.load.file.with_adapters(self.adapters.of(self.serves))
        return Load(self.serves, file)

    def retire(self, drain_timeout: float) -> Decision:
        """Let the engine finish its requests within `drain_timeout` seconds, and end."""
        self.may_return = self.is_loaded and self.role == "serving"
        self.role, self.is_recalled = "retiring", False
        return RetireEngine(self.id, drain_timeout) if self.may_return else EndEngine(self.id)

    def recall(self) -> Decision:
        """Let a retired engine that `may_return` serve again."""
        self.role, self.may_return, self.is_recalled = "serving", False, True
        self.has_joined = False
        return RecallEngine(self.id)


class Engines:
    """All engines of a place. `room` is the memory shared with the host's other places."""

    def __init__(self, room: Room, ids: Iterator[int] | None = None) -> None:
        self._room = room
        room.enter(self)
        self._engines: dict[EngineId, Engine] = {}
        self._ids: Iterator[EngineId] = map(EngineId, ids or count(1))

    def __len__(self) -> int:
        """Return the number of engines, including retiring ones."""
        return len(self._engines)

    def __iter__(self) -> Iterator[Engine]:
        """Yield all engines, oldest first."""
        return iter(self._engines.values())

    def __getitem__(self, id: EngineId) -> Engine:
        """Return the engine with this number. Raises `KeyError`."""
        return self._engines[id]

    def get(self, id: EngineId) -> Engine | None:
        """Return the engine with this number; `None` if it is gone."""
        return self._engines.get(id)

    def pop(self, id: EngineId) -> Engine:
        """Remove and return an engine whose process has ended."""
        return self._engines.pop(id)

    def start(self, load: Load | None, role: Role) -> StartEngine:
        """Add an engine, and return the decision that starts it."""
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

    # ---- roles

    @property
    def serving(self) -> Engine | None:
        """The engine that serves; `None` without one."""
        return self._in_role("serving")

    @property
    def replacing(self) -> Engine | None:
        """The engine that is about to serve; `None` without one."""
        return self._in_role("replacing")

    @property
    def latest(self) -> Engine | None:
        """The engine that has, or had, the newest assignment."""
        return self.replacing or self.serving

    @property
    def staying(self) -> list[Engine]:
        """The engines that are not retiring."""
        return [each for each in self if each.role != "retiring"]

    @property
    def leaving(self) -> list[Engine]:
        """The engines that finish their requests and end."""
        return [each for each in self if each.role == "retiring"]

    @property
    def is_connected(self) -> bool:
        """Return whether a staying engine has joined the balancers."""
        return any(each.has_joined for each in self.staying)

    @property
    def is_connecting(self) -> bool:
        """Return whether a staying engine is loaded and has not joined yet."""
        return any(each.is_loaded and not each.has_joined for each in self.staying)

    def that_can_become(self, desired: Assignment, slots: int) -> Engine | None:
        """Return an engine that can serve `desired` without a reload.

        `slots` applies to assignments that do not set them.
        """
        both = (each for each in (self.serving, self.replacing) if each is not None)
        return next((each for each in both if each.can_become(desired, slots)), None)

    def that_may_return(self, desired: Assignment, slots: int) -> Engine | None:
        """Return a retired engine that can serve `desired`, if no engine serves.

        `slots` applies to assignments that do not set them.
        """
        if self.serving is not None:
            return None
        leaving = (each for each in self.leaving if each.may_return)
        return next((each for each in leaving if each.can_become(desired, slots)), None)

    def _in_role(self, role: Role) -> Engine | None:
        return next((each for each in self if each.role == role), None)

    # ---- room

    @property
    def files(self) -> list[ModelFile | None]:
        """The files that engines have in memory; `None` if unknown."""
        return [each.in_memory for each in self]

    @property
    def is_loading(self) -> bool:
        """Return whether an engine loads its model for the first time."""
        return (engine := self.replacing) is not None and not engine.is_loaded

    @property
    def is_loading_elsewhere(self) -> bool:
        """Return whether another place of the host loads a model."""
        return self._room.is_loading_beside(self)

    @property
    def has_neighbours(self) -> bool:
        """Return whether other places of the host have engines."""
        return bool(self._room.beside(self))

    def too_large(self, file: ModelFile) -> Issue | None:
        """Return the issue of a file that does not fit into the host's memory even alone."""
        return too_large_for(file, self._room.memory)

    def fits(self, load: Load, others: Iterable[Engine]) -> bool:
        """Return whether memory suffices for `load`, `others` and the engines of other places."""
        beside = [*(each.in_memory for each in others), *self._room.beside(self)]
        is_modest = load.assignment.takes_what_is_left
        return self._room.holds(load.file, beside, takes_what_is_left=is_modest)

    def beside(self, id: EngineId) -> tuple[MemoryPart, ...]:
        """Return, per memory, the bytes that the host's other engines use or may still take."""
        others = (each.in_memory for each in self if each.id != id)
        totals: Counter[str] = Counter()
        for file in (*others, *self._room.beside(self)):
            for part in () if file is None else file.claims:
                totals[part.device] += part.bytes
        return tuple(MemoryPart(device=name, bytes=size) for name, size in totals.items())

    def leave(self) -> None:
        """Give up the place, which has no engines."""
        self._room.leave(self)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; for tests."""
        roles = [each.role for each in self]
        if roles.count("serving") > 1 or roles.count("replacing") > 1:
            raise RuntimeError(f"too many engines: {roles}")
        if len(self) > 1:
            *others, last = self
            if last.load is None or not self.fits(last.load, others):
                raise RuntimeError("two engines need more memory than there is")
