"""A store that balancers share, in memory, and what they lead."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from arriero.balancer.cluster.notifications import Changed, Letter, Notification
from arriero.balancer.cluster.peer_store import Beat, Peer, PeerSession
from arriero.balancer.store.port import StoreAway
from arriero.shared.inference import AgentId, RequestId
from tests.waiting import HANGS


class FakePeerStore:
    """As PostgreSQL does it; `goes_away` and `comes_back` at once."""

    def __init__(self) -> None:
        self.epoch = 0
        self.beats: dict[str, Beat] = {}
        self.sessions: list[FakeSession] = []
        self.leader: FakeSession | None = None
        self.is_away = False
        self.num_tries = 0
        self.changed = asyncio.Condition()

    async def open_session(
        self, on_notification: Callable[[Notification], None], on_lost: Callable[[], None]
    ) -> PeerSession:
        self.num_tries += 1
        self.check()
        session = FakeSession(self, on_notification, on_lost)
        self.sessions.append(session)
        return session

    async def notify(self, notification: Notification) -> None:
        self.check()
        for session in list(self.sessions):
            session.on_notification(notification)

    async def send(self, letter: Letter) -> None:
        """At once, as between workers."""
        await self.notify(letter)

    async def left(self) -> None:
        await self.notify(Changed("peers"))

    def check(self) -> None:
        if self.is_away:
            raise StoreAway("connection refused")

    def goes_away(self) -> None:
        self.is_away = True
        for session in list(self.sessions):
            session.close()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until it holds after some balancer's beat."""
        async with asyncio.timeout(HANGS), self.changed:
            await self.changed.wait_for(holds)

    async def happened(self) -> None:
        async with self.changed:
            self.changed.notify_all()


class FakeSession:
    """One balancer's."""

    def __init__(
        self,
        store: FakePeerStore,
        on_notification: Callable[[Notification], None],
        on_lost: Callable[[], None],
    ) -> None:
        self.store, self.on_notification, self._on_lost = store, on_notification, on_lost
        self.is_closed = False

    def check(self) -> None:
        self.store.check()
        if self.is_closed:
            raise StoreAway("the connection is closed")

    async def beat(self, beat: Beat) -> Sequence[Peer]:
        self.check()
        self.store.beats[beat.run] = beat
        await self.store.happened()
        return [Peer(each, 0.5) for each in self.store.beats.values()]

    async def lead(self, above: int) -> int | None:
        self.check()
        if self.store.leader not in (None, self):
            return None
        self.store.leader = self
        self.store.epoch = max(self.store.epoch, above) + 1
        return self.store.epoch

    async def mail(self, run: str) -> Sequence[Letter]:
        self.check()
        return ()

    async def leave(self, run: str) -> None:
        self.check()
        self.store.beats.pop(run, None)
        self._unlock()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.store.sessions.remove(self)
            self._unlock()
            self._on_lost()

    def _unlock(self) -> None:
        if self.store.leader is self:
            self.store.leader = None


class FakeLed:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.outbid: int | None = None
        self.epochs: list[int | None] = []
        self.waiting: Mapping[str, tuple[int, float]] = {}
        self.heard: tuple[int, Mapping[str, tuple[int, float]]] = (0, {})
        self.retried: list[AgentId] = []
        self.cancelled: list[RequestId] = []

    @property
    def views(self) -> "FakeLed":
        return self

    @property
    def leads(self) -> bool:
        return bool(self.epochs) and self.epochs[-1] is not None

    def lead(self, epoch: int) -> None:
        self.epochs.append(epoch)
        self.outbid = None

    def follow(self) -> None:
        self.epochs.append(None)

    def waiting_by_model(self) -> Mapping[str, tuple[int, float]]:
        return self.waiting

    def others(self, num_live: int, waiting: Mapping[str, tuple[int, float]]) -> None:
        self.heard = (num_live, waiting)

    def retry_agent(self, agent: AgentId) -> None:
        self.retried.append(agent)

    def cancel(self, ids: Iterable[RequestId]) -> int:
        self.cancelled += ids
        return 1
