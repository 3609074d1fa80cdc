"""The interfaces of a store that several balancers share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .notifications import Letter, Notification


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """The record that a live balancer writes about itself every second or so.

    `run` is new at each start. `waiting` names the models that its requests wait for (JSON).
    Clients reach it at `url`, if it knows its address.
    """

    run: str
    name: str
    version: str
    is_leading: bool = False
    waiting: str = "{}"
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """A balancer that lives, as of its last beat, `age` seconds ago.

    Its first beat was at `started_at`, in seconds since 1970, if that is known.
    """

    beat: Beat
    age: float
    started_at: float | None = None


class PeerSession(Protocol):
    """One connection of its own. Its loss is reported at once, and ends leadership with it.

    One call at a time; every one raises `StoreAway`, after which the session is of no use.
    """

    async def beat(self, beat: Beat) -> Sequence[Peer]:
        """Say that this balancer lives; which ones do, itself among them."""

    async def lead(self, above: int) -> int | None:
        """Lead, if no other balancer does: the new epoch, larger than `above` and all before it.

        The leader may call it again, for a newer epoch.
        """

    async def mail(self, run: str) -> Sequence[Letter]:
        """The letters to this run, once, in the order in which they were sent."""

    async def leave(self, run: str) -> None:
        """Lead no more, and be no more among those that live."""

    def close(self) -> None:
        """Let go of the connection, and so of leadership; well if it is gone. Never waits."""


class NotificationHub(Protocol):
    """A `PeerStore` beside a store that sends no notifications: it sends those of transactions."""

    async def open_session(
        self, on_notification: Callable[[Notification], None], on_lost: Callable[[], None]
    ) -> PeerSession: ...

    async def send(self, letter: Letter) -> None: ...

    async def left(self) -> None: ...

    def spread(self, notifications: Sequence[Notification]) -> None:
        """Tell all balancers, this one among them."""


class PeerStore(Protocol):
    """Lets balancers find one another."""

    async def open_session(
        self, on_notification: Callable[[Notification], None], on_lost: Callable[[], None]
    ) -> PeerSession:
        """Get notifications from now on. `on_lost` is called once, when the connection is gone.

        Raises `StoreAway`.
        """

    async def send(self, letter: Letter) -> None:
        """To all balancers that live, this one among them; an answer to who asked.

        Raises `StoreAway`.
        """

    async def left(self) -> None:
        """Tell all balancers that this one went, in good order. Raises `StoreAway`."""
