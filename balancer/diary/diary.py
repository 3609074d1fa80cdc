"""Keeps the diary and the list of hosts: watches the fleet, writes to the store, wakes readers.

Nothing waits for the store: entries are written in the background, and readers get written
entries. Of several balancers over one store, the leader writes the events of the fleet. Each
balancer writes the actions of its own users.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from ...shared.errors import Conflict, NotFound, StoreUnavailable
from ...shared.inference import AgentId
from ...shared.messages import Issue
from ..fleet.core.fleet_views import FleetViews
from ..fleet.runtime.fleet_runtime import FleetRuntime
from ..fleet.view import Departure
from ..store.health import StoreHealth
from ..store.port import StoreAway
from ..store.records import MAX_DIARY, DiaryEntry, DiaryKind, SavedHost
from ..store.store import Store
from ..store.write_behind import WriteBehind
from .watcher import Observed, Watcher

logger = logging.getLogger(__name__)

LOOK_INTERVAL = 1.0
"""Seconds between two checks of a changing fleet; shorter events are not recorded."""

SEEN_INTERVAL = 60.0
"""Seconds after which the store is told again when connected hosts were seen."""

READ_TIMEOUT = 5.0
"""Seconds after which a store that does not answer counts as away."""

THE_BALANCER = "the balancer"

Item = DiaryEntry | SavedHost


class DiaryBacklog:
    """The `Backlog` of the diary: entries, of which the oldest are dropped first, and hosts."""

    def __init__(self) -> None:
        self._entries: list[DiaryEntry] = []
        self._hosts: dict[str, SavedHost] = {}

    def __len__(self) -> int:
        return len(self._entries) + len(self._hosts)

    @property
    def has_any(self) -> bool:
        """Whether any entries wait to be written."""
        return len(self) > 0

    def add(self, observed: Observed) -> int:
        """Add entries and hosts to write. Returns how many other entries were dropped."""
        self._entries += observed.entries
        self._hosts |= {host.name: host for host in observed.hosts}
        surplus = max(0, len(self._entries) - MAX_DIARY)
        del self._entries[:surplus]
        return surplus

    def next_batch(self) -> Sequence[Item]:
        """Return all waiting entries and hosts."""
        return [*self._entries, *self._hosts.values()]

    def written(self, items: Sequence[Item], _outcome: None) -> None:
        """Remove items that were written."""
        for item in items:
            self.lost(item)

    def lost(self, item: Item) -> None:
        """Give up `item`, which can never be written."""
        if isinstance(item, DiaryEntry):
            self._entries = [each for each in self._entries if each is not item]
        elif self._hosts.get(item.name) is item:
            del self._hosts[item.name]


class Diary:
    """The diary of a balancer. `note` never waits, and may be called before `run`."""

    def __init__(
        self,
        runtime: FleetRuntime,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        look_interval: float = LOOK_INTERVAL,
    ) -> None:
        self._look_interval = look_interval
        self._runtime = runtime
        self._store = store
        self._clock = clock
        self._watcher = Watcher()
        self._backlog = DiaryBacklog()
        self._health = StoreHealth("the diary's store")
        self._writes: WriteBehind[Item, None] = WriteBehind(
            self._backlog,
            self._write,
            health=self._health,
            loss="an entry of the diary could not be written, and is lost",
            name_of=_name_of,
        )
        self._revision = -1
        self._seen_at = clock()
        self._timer: asyncio.TimerHandle | None = None
        self._has_new = asyncio.Event()
        self.issues: Callable[[], Sequence[Issue]] = tuple
        """The balancer's own issues."""
        self.leads: Callable[[], bool] = lambda: True
        """Whether this balancer writes the events of the fleet."""

    @property
    def num_hosts(self) -> Mapping[str, int]:
        """The number of hosts in each state."""
        states = [host.state for host in self._watcher.hosts.values()]
        return {state: states.count(state) for state in ("here", "drained", "stopped", "lost")}

    @property
    def lost_hosts(self) -> list[str]:
        """The names of the hosts whose connection was lost."""
        return sorted(name for name, host in self._watcher.hosts.items() if host.state == "lost")

    async def restore(self) -> None:
        """Read the known hosts from the store. Raises `StoreAway`."""
        self._watcher.restore(await self._store.diary.load_hosts(), self._clock())

    def now(self) -> float:
        """Return seconds since 1970."""
        return self._clock()

    def note(self, kind: DiaryKind, subject: str, message: str, *, by: str | None = None) -> None:
        """Write an entry about what has happened now.

        `by` is the name of the key of the person who did it.
        """
        entry = DiaryEntry(at=self._clock(), kind=kind, subject=subject, message=message, by=by)
        self._add(Observed((entry,)))

    # ---- readers

    async def entries(
        self, *, since: float = 0.0, after: int = 0, limit: int, oldest_first: bool = False
    ) -> list[DiaryEntry]:
        """Return entries; see `DiaryStore.find`. Raises `StoreUnavailable`."""
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                await self._writes.flush(READ_TIMEOUT / 2)
                return await self._store.diary.find(
                    since=since, after=after, limit=limit, oldest_first=oldest_first
                )
        except (StoreAway, TimeoutError) as error:
            raise StoreUnavailable(f"the diary cannot be read: {error}") from error

    def bell(self) -> asyncio.Event:
        """Return an event that is set when a new entry arrives."""
        return self._has_new

    def hosts(self) -> list[SavedHost]:
        """Return all hosts by name; connected ones count as seen now."""
        self._watcher.seen(self._clock())
        return sorted(self._watcher.hosts.values(), key=lambda host: host.name)

    async def forget(self, name: str, *, by: str | None = None) -> None:
        """Remove a host that is not connected.

        Raises `NotFound`, `Conflict`, `StoreUnavailable`.
        """
        if self._watcher.is_here(name):
            raise Conflict(f"{name[:200]} is connected; stop its agent first")
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                was_known = await self._store.diary.forget_host(name)
        except (StoreAway, TimeoutError) as error:
            raise StoreUnavailable(f"the host cannot be removed: {error}") from error
        was_known = name in self._watcher.hosts or was_known
        self._watcher.forget(name)
        if not was_known:
            raise NotFound(f"no host is called {name[:200]!r}")
        self.note("host_forgotten", name, "it was removed from the list of hosts", by=by)

    async def reconcile(self) -> bool:
        """Read the hosts that other balancers wrote. Returns whether they could be read."""
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                self._watcher.know(await self._store.diary.load_hosts())
        except (StoreAway, TimeoutError) as error:
            logger.warning("the balancer could not read the hosts from the store: %s", error)
            return False
        self._wake()
        return True

    # ---- in the background

    async def run(self) -> None:
        """Watch and write, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._writes.run())
            tasks.create_task(self._watch())

    async def flush(self, within: float) -> None:
        """Write waiting entries, as far as the store takes them in time; `run` must be running."""
        if self.leads():
            self._add(Observed((), self._watcher.seen(self._clock())))
        await self._writes.flush(within)

    async def _watch(self) -> None:
        try:
            async for _ in self._runtime.changes():
                if self._runtime.views.totals().is_draining:
                    return  # agents go since the balancer does
                self._look()
                await asyncio.sleep(self._look_interval)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _look(self) -> None:
        views, now, watcher = self._runtime.views, self._clock(), self._watcher
        change = views.changes_since(self._revision)
        if self._revision < 0 or change is None:
            view = views.view(max_requests=0)
            here = {agent.id for agent in view.agents}
            agents, left = view.agents, watcher.ids - here
        else:
            agents, left = change.agents, set(change.agents_left)
        self._revision = views.revision
        departures: dict[AgentId, Departure | None] = {id: views.departure_of(id) for id in left}
        self._observed(watcher.agents(agents, departures, now))
        self._observed(watcher.failed(_failed(views), now))
        self._observed(watcher.issues("", THE_BALANCER, self.issues(), now))
        if now >= self._seen_at + SEEN_INTERVAL:
            self._seen_at = now
            self._observed(Observed((), watcher.seen(now)))
        self._arm()

    def _due(self) -> None:
        self._observed(self._watcher.due(self._clock()))
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (deadline := self._watcher.next_deadline()) is not None:
            delay = max(0.0, deadline - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._due)

    def _observed(self, observed: Observed) -> None:
        if self.leads():
            self._add(observed)

    def _add(self, observed: Observed) -> None:
        if observed.entries or observed.hosts:
            self._health.num_lost += self._backlog.add(observed)
            self._writes.stir()

    async def _write(self, items: Sequence[Item]) -> None:
        entries = [item for item in items if isinstance(item, DiaryEntry)]
        hosts = [item for item in items if isinstance(item, SavedHost)]
        await self._store.diary.write(entries, hosts)
        if entries:
            self._wake()

    def _wake(self) -> None:
        self._has_new.set()
        self._has_new = asyncio.Event()


def _failed(views: FleetViews) -> Mapping[str, Issue]:
    """Return the desired models that failed to load, and adapters of other models, by name."""
    models = views.statuses()
    adapters = {
        name: status
        for name, status in views.adapters().items()
        if models[status.model.name].status != "failed"
    }
    return {
        name: status.issues[0]
        for name, status in {**models, **adapters}.items()
        if status.status == "failed" and status.issues
    }


def _name_of(item: Item) -> Mapping[str, object]:
    if isinstance(item, DiaryEntry):
        return {"record": "entry", "kind": item.kind, "of": item.subject}
    return {"record": "host", "name": item.name}
