"""The interfaces of a store that several balancers share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .notifications import Letter, Notification


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """The record that a live balancer writes about itself every second or so.

    `run` is new at each start. `waiting` names the models that its requests wait for (JSON).
    Clients reach the balancer at `url`, if known.
    """

    run: str
    name: str
    version: str
    is_leading: bool = False
    waiting: str = "{}"
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """A live balancer, as of its last beat, `age` seconds ago.

    Its first beat was at `started_at`, in seconds since 1970, if known.
    """

    beat: Beat
    age: float
    started_at: float | None = None


class PeerSession(Protocol):
    """A connection to the store for this balancer alone.

    The loss of the connection is reported at once, and ends leadership.

    One call at a time. Every call raises `StoreAway`, after which the session cannot be used.
    """

    async def beat(self, beat: Beat) -> Sequence[Peer]:
        """Record that this balancer lives. Returns all live balancers, including this one."""

    async def lead(self, above: int) -> int | None:
        """Lead, if no other balancer does.

        Returns the new epoch, larger than `above` and all earlier epochs.

        The leader may call this again for a newer epoch.
        """

    async def mail(self, run: str) -> Sequence[Letter]:
        """Return the letters to this run, each once, in the order in which they were sent."""

    async def leave(self, run: str) -> None:
        """Stop leading, and remove this balancer from the live balancers."""

    def close(self) -> None:
        """Close the connection, which ends leadership. May be called again. Never waits."""


class NotificationHub(Protocol):
    """Sends the notifications of transactions, for a `PeerStore` whose database sends none."""

    async def open_session(
        self, on_notification: Callable[[Notification], None], on_lost: Callable[[], None]
    ) -> PeerSession: ...

    async def send(self, letter: Letter) -> None: ...

    async def left(self) -> None: ...

    def spread(self, notifications: Sequence[Notification]) -> None:
        """Send notifications to all balancers, including this one."""


class PeerStore(Protocol):
    """Lets balancers find each other."""

    async def open_session(
        self, on_notification: Callable[[Notification], None], on_lost: Callable[[], None]
    ) -> PeerSession:
        """Receive notifications from now on. `on_lost` is called once, when the connection is lost.

        Raises `StoreAway`.
        """

    async def send(self, letter: Letter) -> None:
        """Send a letter to all live balancers, including this one.

        An answer is sent only to the asking balancer. Raises `StoreAway`.
        """

    async def left(self) -> None:
        """Tell all balancers that this balancer left in good order. Raises `StoreAway`."""
