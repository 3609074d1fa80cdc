"""Decides what a balancer of a shared store has to read, and whether it leads.

Every method takes an event and returns decisions, in order. Invariants: a balancer leads only
while its session lasts; its epochs grow; after each new session everything is read again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from .notifications import SUBJECTS, Broadcast, CancelRequest, Changed, RetryAgent, Subject
from .peer_store import Peer


@dataclass(frozen=True, slots=True)
class Read:
    """Read this from the store, because it may have changed."""

    what: Subject


@dataclass(frozen=True, slots=True)
class Lead:
    """Give orders to agents from now on, in this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Give no more orders."""


@dataclass(frozen=True, slots=True)
class ShareWith:
    """Share limits with these live balancers, and consider the models that their requests wait
    for.
    """

    peers: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the request, if this balancer has it."""

    id: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Let the agent try again an order that failed."""

    agent: str


Decision = Read | Lead | Follow | ShareWith | Cancel | Retry


class Leadership:
    """The leadership of one run of a balancer."""

    def __init__(self, run: str) -> None:
        self._run = run
        self.epoch: int | None = None
        """The epoch in which the balancer leads; `None` while it does not lead."""
        self.peers: tuple[Peer, ...] = ()
        """All live balancers as of the last beat, including this one."""
        self._is_connected = False
        self._last_epoch = 0

    @property
    def num_live(self) -> int:
        """The number of live balancers, including this one, as far as known."""
        return 1 + sum(peer.beat.run != self._run for peer in self.peers)

    # ---- the session

    def connected(self) -> list[Decision]:
        """Begin a new session; notifications before it were missed."""
        self._is_connected = True
        return [Read(what) for what in SUBJECTS]

    def lost(self) -> list[Decision]:
        """End the session, and leadership with it. The other balancers may still live."""
        was_leading, self.epoch = self.epoch is not None, None
        self._is_connected = False
        return [Follow()] if was_leading else []

    def beaten(self, peers: Sequence[Peer]) -> list[Decision]:
        """Take the balancers that the store lists."""
        self.peers = tuple(peers)
        return [ShareWith(tuple(peer for peer in peers if peer.beat.run != self._run))]

    def granted(self, epoch: int | None) -> list[Decision]:
        """Take the store's answer to a request for leadership.

        A grant that arrives after its session was lost is ignored.
        """
        if epoch is None or not self._is_connected:
            return []
        if epoch <= self._last_epoch:
            raise RuntimeError(f"epoch {epoch} is granted after {self._last_epoch}")
        self.epoch = self._last_epoch = epoch
        return [Lead(epoch)]

    def must_ask(self, outbid: int | None) -> bool:
        """Return whether to ask for leadership. `outbid` is a newer epoch that agents know."""
        return self.epoch is None or (outbid is not None and outbid > self.epoch)

    # ---- notifications

    def heard(self, notification: Broadcast) -> list[Decision]:
        """Take a notification of a balancer, perhaps of this one."""
        match notification:
            case Changed(what=what):
                return [Read(what)]
            case CancelRequest(id=id):
                return [Cancel(id)]
            case RetryAgent(agent=agent):
                return [Retry(agent)] if self.epoch is not None else []
            case _:
                assert_never(notification)
