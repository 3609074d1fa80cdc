"""The engines of this host: which serves, which replaces it, which leave; what fits beside them.

Invariants: one engine serves at most, and one replaces it at most; together they never need more
memory than the host has.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from ...shared.messages import Issue
from ...shared.models.assignments import Assignment, needs_reload
from .decisions import (
    ChangeEngine,
    Decision,
    EndEngine,
    EngineId,
    ModelFile,
    RetireEngine,
    StartEngine,
)
from .load_failures import too_large

Role = Literal["serving", "replacing", "retiring"]


@dataclass(frozen=True, slots=True)
class Load:
    """What to load. A fallback ran before, and was retired to make room."""

    assignment: Assignment
    file: ModelFile
    is_fallback: bool = False

    def is_free(self, available: int | None) -> bool:
        """Whether it fits into `available` bytes, as far as both are known."""
        return available is None or self.file.needed is None or self.file.needed <= available


@dataclass(slots=True)
class Engine:
    """`load` is `None` for the model that the agent is pinned to.

    `serves` is what it serves now, `told` what it was told last; both began as its `load`'s.
    """

    id: EngineId
    load: Load | None
    serves: Assignment | None
    told: Assignment | None
    role: Role
    is_loaded: bool = False
    has_joined: bool = False

    @property
    def is_fallback(self) -> bool:
        """Whether it brings back what ran before."""
        return self.load is not None and self.load.is_fallback

    def can_become(self, wish: Assignment, slots: int) -> bool:
        """Whether it can serve `wish` without a reload; `slots` where an assignment says none."""
        if self.load is None:
            return False
        loaded = self.load.assignment
        wanted = replace(wish, slots=wish.slots or slots)
        return not needs_reload(loaded, wanted, loaded_slots=loaded.slots or slots)

    def change(self, wish: Assignment) -> list[Decision]:
        """Have it serve `wish`, once it is loaded."""
        if self.told == wish:
            return []
        self.told = wish
        return [ChangeEngine(self.id, wish)] if self.is_loaded else []

    def retire(self, drain_timeout: float) -> Decision:
        """Have it finish what it has, within so many seconds, and end."""
        is_loaded = self.is_loaded and self.role == "serving"
        self.role = "retiring"
        return RetireEngine(self.id, drain_timeout) if is_loaded else EndEngine(self.id)


class Engines:
    """`memory` in bytes is what all may use together; 0: unknown, so one at a time."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._engines: dict[EngineId, Engine] = {}
        self._ids: Iterator[EngineId] = map(EngineId, count(1))

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
        """One more."""
        id = next(self._ids)
        wish = None if load is None else load.assignment
        self._engines[id] = Engine(id, load, serves=wish, told=wish, role=role)
        return StartEngine(id, wish, None if load is None else load.file)

    # ---- who is here

    @property
    def serving(self) -> Engine | None:
        """The one that serves."""
        return self._in_role("serving")

    @property
    def replacing(self) -> Engine | None:
        """The one that is about to serve."""
        return self._in_role("replacing")

    @property
    def latest(self) -> Engine | None:
        """The one that brings the wish about, or did."""
        return self.replacing or self.serving

    @property
    def staying(self) -> list[Engine]:
        """Those that do not leave."""
        return [each for each in self if each.role != "retiring"]

    @property
    def leaving(self) -> list[Engine]:
        """Those that finish what they have."""
        return [each for each in self if each.role == "retiring"]

    @property
    def is_connected(self) -> bool:
        """Whether one that stays has joined the balancers."""
        return any(each.has_joined for each in self.staying)

    @property
    def is_connecting(self) -> bool:
        """Whether one that stays is loaded, and has not joined yet."""
        return any(each.is_loaded and not each.has_joined for each in self.staying)

    def _in_role(self, role: Role) -> Engine | None:
        return next((each for each in self if each.role == role), None)

    # ---- room

    def too_large(self, file: ModelFile) -> Issue | None:
        """The issue of a file that the host's memory does not hold even alone."""
        if not self._memory or file.needed is None or file.needed <= self._memory:
            return None
        return too_large(file.needed, self._memory)

    def fits(self, load: Load, others: Iterable[Engine]) -> bool:
        """Whether the host's memory holds it together with `others`."""
        beside = [each.load for each in others]
        if not beside:
            return True
        needs = [None if each is None else each.file.needed for each in (load, *beside)]
        known = [each for each in needs if each is not None]
        return len(known) == len(needs) and sum(known) <= self._memory

    def check_integrity(self) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        roles = [each.role for each in self]
        if roles.count("serving") > 1 or roles.count("replacing") > 1:
            raise RuntimeError(f"too many engines: {roles}")
        if len(self) > 1:
            *others, last = self
            if last.load is None or not self.fits(last.load, others):
                raise RuntimeError("two engines where memory is short")
