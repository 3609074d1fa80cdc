"""Requests that wait for one agent, which has computed much of their prompt; for a while.

Each is held once. Invariant: a request that is held is held for one agent.
"""

from collections.abc import Collection
from dataclasses import dataclass

from .....shared.inference import RequestId
from ...decisions import LinkId


@dataclass(frozen=True, slots=True)
class Hold:
    """The request waits for one agent: call `release` after so many seconds, unless it started."""

    request: RequestId
    seconds: float


@dataclass(slots=True)
class _Wait:
    """`link` is `None` once the request was started."""

    link: LinkId | None
    is_held: bool = True


class Holds:
    """A request is known from when it is held until it is forgotten."""

    __slots__ = ("_held", "_new", "_waits")

    def __init__(self) -> None:
        self._waits: dict[RequestId, _Wait] = {}
        self._held: dict[LinkId, set[RequestId]] = {}
        self._new: list[Hold] = []

    def hold(self, id: RequestId, link: LinkId, seconds: float) -> None:
        """From now on the request waits for this agent alone."""
        if id in self._waits:
            raise ValueError(f"request {id} was held before")
        self._waits[id] = _Wait(link)
        self._held.setdefault(link, set()).add(id)
        self._new.append(Hold(id, seconds))

    def release(self, id: RequestId) -> bool:
        """The request takes any agent from now on; whether it was held."""
        wait = self._waits.get(id)
        if wait is None or not wait.is_held or wait.link is None:
            return False
        wait.is_held = False
        held = self._held[wait.link]
        held.remove(id)
        if not held:
            del self._held[wait.link]
        return True

    def started(self, id: RequestId) -> LinkId | None:
        """The request has an agent; for which one it has waited since its last start, if it has."""
        self.release(id)
        wait = self._waits.get(id)
        if wait is None:
            return None
        link, wait.link = wait.link, None
        return link

    def forget(self, id: RequestId) -> None:
        """The request is over."""
        self.release(id)
        self._waits.pop(id, None)

    def take_new(self) -> list[Hold]:
        """Those that are held since the last call; they may have ended."""
        new, self._new = self._new, []
        return new

    def link_for(self, id: RequestId) -> LinkId | None:
        """The agent for which a request is held."""
        wait = self._waits.get(id)
        return wait.link if wait is not None and wait.is_held else None

    def was_held(self, id: RequestId) -> bool:
        """Whether a request was held, ever."""
        return id in self._waits

    def held_for(self, link: LinkId) -> Collection[RequestId]:
        """The requests that wait for an agent."""
        return self._held.get(link, ())

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        held = {id: link for link, ids in self._held.items() for id in ids}
        expected = {id: wait.link for id, wait in self._waits.items() if wait.is_held}
        if held != expected or not all(self._held.values()):
            raise RuntimeError("a request is held for no agent")
