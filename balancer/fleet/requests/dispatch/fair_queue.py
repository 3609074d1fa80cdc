"""The requests that wait, and which of them is next for an agent.

The highest class goes first, but for a share of those that starve: a class that has waited for
`STARVED_AFTER` seconds behind higher ones, for one model, gets every `EVERY`th start of that model
from then on, until nothing higher waits. Within a class callers have equal shares of each model's
slots, counted in tokens, and so have the connections of one caller that has no key. Within a
connection, or a key, requests start in the order they came.

A request is here from `arrived` to `ended`. It waits, or runs and is only counted. One that comes
back waits again where it was when it started, before whatever its caller has sent since.

Two levels make the order. A caller has as many turns as requests; turns have the tags, by which
callers take turns with each other. A second order, of connections, says which request gets the
caller's next turn. So a place is known exactly: as if no other request came, and no lower class had
a share.

Models have clocks of their own, and so have requests that take any model. A tag counts by how
far it is after its clock, and the clocks of requests that compete for a slot go on alike.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from .....shared.inference import PRIORITY_CLASSES, PriorityClass, RequestId
from ...caller import Account, Flow
from ...tally import Tally
from ..eligibility import Able, Alone, ByText, Engine, QueueKey, RoutingRequest, Warm, model_of
from ..matching import Queues
from .fair_order import FairOrder, share_of

STARVED_AFTER = 10.0
"""Seconds that a class waits behind higher ones until it has a share."""

EVERY = 4
"""One of so many starts is that share."""

FALLING: tuple[PriorityClass, ...] = tuple(reversed(PRIORITY_CLASSES))


@dataclass(slots=True)
class _Hunger:
    """`num_passed`: starts of higher classes since the last of this one."""

    since: float
    num_passed: int = 0


class Turns:
    """Which class has the next turn.

    A pool is what a request waits for: a model by name, or `None` for any.
    """

    __slots__ = ("_hungers",)

    def __init__(self) -> None:
        self._hungers: dict[tuple[PriorityClass, str | None], _Hunger] = {}

    def waits(self, kind: PriorityClass, pool: str | None, now: float) -> None:
        """A request of this class waits in a pool where none did."""
        self._hungers[kind, pool] = _Hunger(now)

    def empty(self, kind: PriorityClass, pool: str | None) -> None:
        """No request of this class waits there any more."""
        del self._hungers[kind, pool]

    def next(
        self, kinds: Sequence[PriorityClass], pools: Collection[str | None], now: float
    ) -> PriorityClass:
        """The class whose turn it is, of `kinds` that wait, highest first, at least one."""
        for kind in reversed(kinds[1:]):
            hungers = self._of(kind, pools)
            if any(_is_due(hunger, now) for hunger in hungers):
                return kind
        return kinds[0]

    def started(
        self,
        kind: PriorityClass,
        others: Iterable[PriorityClass],
        pools: Collection[str | None],
        now: float,
    ) -> None:
        """A request of `kind` starts while those of `others` wait for the same agents."""
        others = list(others)
        is_first = all(
            PRIORITY_CLASSES.index(other) < PRIORITY_CLASSES.index(kind) for other in others
        )
        for hunger in self._of(kind, pools):
            hunger.num_passed = 0
            hunger.since = now if is_first else hunger.since
        for other in others:
            for hunger in self._of(other, pools):
                hunger.num_passed += _is_starved(hunger, now)

    def _of(self, kind: PriorityClass, pools: Collection[str | None]) -> list[_Hunger]:
        found = (self._hungers.get((kind, pool)) for pool in pools)
        return [hunger for hunger in found if hunger is not None]

    def check_integrity(self, waiting: Collection[tuple[PriorityClass, str | None]]) -> None:
        """For tests: raise if other classes wait than these."""
        if self._hungers.keys() != set(waiting):
            raise RuntimeError(f"{self._hungers.keys()} are said to wait, and {waiting} do")


def _is_starved(hunger: _Hunger, now: float) -> bool:
    return now - hunger.since >= STARVED_AFTER


def _is_due(hunger: _Hunger, now: float) -> bool:
    return _is_starved(hunger, now) and hunger.num_passed >= EVERY - 1


Pool = tuple[PriorityClass, str | None]
"""A class, and the model that is waited for; `None` is any."""


@dataclass(slots=True)
class _Entry:
    """`turn` is the one with which it started, the last time."""

    number: int
    key: QueueKey
    kind: PriorityClass
    account: Account
    connection: Flow | None
    charge: int
    turn: int | None = None

    @property
    def pool(self) -> Pool:
        return (self.kind, model_of(self.key))


@dataclass(slots=True)
class _Shares:
    """One class and model: the callers' turns, and each caller's requests in their order."""

    turns: FairOrder[Account, QueueKey] = field(default_factory=FairOrder)
    callers: dict[Account, FairOrder[Flow | None, QueueKey]] = field(default_factory=dict)
    num_waiting: int = 0


class FairQueue:
    """Knows no agents. Every change costs O(log n)."""

    def __init__(self) -> None:
        self._waiting = Queues()
        self._entries: dict[RequestId, _Entry] = {}
        self._ids: dict[int, RequestId] = {}
        self._pools: dict[Pool, _Shares] = {}
        self._num_in_queue: Tally[QueueKey] = Tally()
        """How many wait in each queue."""
        self._engines: dict[str, set[Engine]] = {}
        """The engines that requests wait for, by model."""
        self._num_waiting: dict[PriorityClass, int] = dict.fromkeys(FALLING, 0)
        self._turns = Turns()
        self._num_arrived = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def __contains__(self, id: object) -> bool:
        """Whether a request waits."""
        return id in self._waiting

    # ---- requests come and go

    def arrived(self, id: RequestId, routing: RoutingRequest, now: float) -> None:
        """A new request waits."""
        if id in self._entries:
            raise ValueError(f"request {id} is here already")
        self._num_arrived += 1
        caller = routing.caller
        entry = _Entry(
            number=self._num_arrived,
            key=routing.queue_key,
            kind=routing.priority_class,
            account=caller.account,
            connection=caller.flow,
            charge=routing.charge,
        )
        self._entries[id], self._ids[entry.number] = entry, id
        self._add(entry)
        self._waits(id, entry, now)

    def started(self, id: RequestId, keys: Iterable[QueueKey], now: float) -> None:
        """A request that waits gets a slot of an agent that takes those of `keys`."""
        entry = self._entries[id]
        self._leaves(id, entry)
        shares = self._pools[entry.pool]
        entry.turn = shares.turns.of_flow(entry.account, entry.key)[0][1]
        shares.callers[entry.account].take(entry.number)
        keys = list(keys)
        pools = {model_of(key) for key in keys}
        self._take(entry.turn, shares, [(entry.kind, pool) for pool in pools])
        others = [kind for kind in self._kinds(keys) if kind != entry.kind]
        self._turns.started(entry.kind, others, pools, now)

    def _take(self, turn: int, shares: _Shares, pools: Iterable[Pool]) -> None:
        """A turn is taken: clocks of all that competed for it go on alike (`FairOrder.take`)."""
        lag, cost = shares.turns.extract(turn)
        known = {id(each): each for pool in pools if (each := self._pools.get(pool)) is not None}
        orders = [each.turns for each in ({id(shares): shares} | known).values()]
        lag += share_of(cost, sum(order.num_flows for order in orders))
        for order in orders:
            order.clock += lag

    def came_back(self, id: RequestId, key: QueueKey, now: float) -> None:
        """A request that ran waits again, for the same or for an engine of that model."""
        entry = self._entries[id]
        if entry.turn is None:
            raise ValueError(f"request {id} waits already")
        if model_of(key) != model_of(entry.key):
            self._forget(entry, entry.charge)
            entry.key, entry.turn = key, None
            self._add(entry, is_next=True)
        else:
            entry.key = key
            shares = self._pools[entry.pool]
            shares.callers[entry.account].put_back(entry.number, key)
            shares.turns.put_back(entry.turn, key)
            entry.turn = None
        self._waits(id, entry, now)

    def changed(self, id: RequestId, key: QueueKey, now: float) -> None:
        """A request that waits now waits for other agents of the same model, with the same tags."""
        entry = self._entries[id]
        shares, (_, turn) = self._pools[entry.pool], self._turn_of(entry)
        self._leaves(id, entry)
        entry.key = key
        shares.turns.move(turn, key)
        shares.callers[entry.account].move(entry.number, key)
        self._waits(id, entry, now)

    def ended(self, id: RequestId, charge: int) -> None:
        """A request is over, and counts `charge`; one that waits counts nothing."""
        entry = self._entries.pop(id)
        del self._ids[entry.number]
        if entry.turn is None:
            self._leaves(id, entry)
        self._forget(entry, charge)

    def renamed(self, id: RequestId, key: QueueKey, now: float) -> None:
        """A request that waits waits for another model, before those that came there later."""
        entry = self._entries[id]
        self._leaves(id, entry)
        self._forget(entry, 0)
        entry.key = key
        self._add(entry, is_next=True)
        self._waits(id, entry, now)

    # ---- which is next

    def first(self, keys: Sequence[QueueKey], now: float) -> RequestId | None:
        """The next request for an agent that takes those of `keys`."""
        kinds = self._kinds(keys)
        if not kinds:
            return None
        pools = {model_of(key) for key in keys}
        kind = self._turns.next(kinds, pools, now) if len(kinds) > 1 else kinds[0]
        heads = [head for key in keys if (head := self._head(kind, key)) is not None]
        return self._ids[min(heads)[2]]

    def place(self, id: RequestId, served: Collection[QueueKey]) -> int:
        """Its place, from 1, among those that the same agents could start.

        A request for any model counts those for what is in `served`.
        """
        entry = self._entries[id]
        kind, key = entry.kind, entry.key
        tag, number = self._turn_of(entry)
        lag = tag - self._pools[entry.pool].turns.clock
        rivals = self._rivals(key, served)
        higher = FALLING[: FALLING.index(kind)]
        before = sum(self._num_in(each, rival) for each in higher for rival in rivals)
        return 1 + before + sum(self._num_before(kind, rival, lag, number) for rival in rivals)

    # ---- which waits for what

    def of(self, model: str) -> list[RequestId]:
        """The requests for any agent of exactly this model, first arrived first."""
        return sorted(self._waiting.of(model), key=lambda id: self._entries[id].number)

    def stranded(self, served: Collection[QueueKey]) -> list[RequestId]:
        """Requests of queues that are not in `served`."""
        return self._waiting.stranded(served)

    def models(self) -> Iterator[tuple[str | None, int, RequestId]]:
        """Models that are waited for, the number of requests that do, and the first that came."""
        return self._waiting.models()

    def num_of(self, kind: PriorityClass) -> int:
        """How many of a class wait."""
        return self._num_waiting[kind]

    # ---- inside

    def _add(self, entry: _Entry, *, is_next: bool = False) -> None:
        number, key, charge = entry.number, entry.key, entry.charge
        shares = self._pools.setdefault(entry.pool, _Shares())
        shares.turns.add(number, entry.account, key, charge, is_next=is_next)
        caller = shares.callers.setdefault(entry.account, FairOrder())
        caller.add(number, entry.connection, key, charge, is_next=is_next)

    def _forget(self, entry: _Entry, charge: int) -> None:
        shares, account = self._pools[entry.pool], entry.account
        caller = shares.callers[account]
        if entry.turn is None:
            caller.withdraw(entry.number)
            shares.turns.withdraw(shares.turns.of_flow(account, entry.key)[-1][1])
        else:
            caller.end(entry.number, charge)
            shares.turns.end(entry.turn, charge)
        if not caller:
            del shares.callers[account]
        if not shares.turns:
            del self._pools[entry.pool]

    def _waits(self, id: RequestId, entry: _Entry, now: float) -> None:
        self._waiting.put(id, entry.key, entry.number)
        self._num_waiting[entry.kind] += 1
        shares = self._pools[entry.pool]
        shares.num_waiting += 1
        if shares.num_waiting == 1:
            self._turns.waits(*entry.pool, now)
        self._num_in_queue.add(entry.key, 1)
        if isinstance(entry.key, Engine):
            self._engines.setdefault(entry.key.model, set()).add(entry.key)

    def _leaves(self, id: RequestId, entry: _Entry) -> None:
        self._waiting.remove(id)
        self._num_waiting[entry.kind] -= 1
        shares = self._pools[entry.pool]
        shares.num_waiting -= 1
        if not shares.num_waiting:
            self._turns.empty(*entry.pool)
        key = entry.key
        self._num_in_queue.add(key, -1)
        if isinstance(key, Engine) and key not in self._num_in_queue:
            self._engines[key.model].remove(key)
            if not self._engines[key.model]:
                del self._engines[key.model]

    def _kinds(self, keys: Iterable[QueueKey]) -> list[PriorityClass]:
        """The classes of the requests that wait in the queues `keys`, highest first."""
        if not len(self):
            return []
        keys = list(keys)
        return [kind for kind in FALLING if any(self._num_in(kind, key) for key in keys)]

    def _head(self, kind: PriorityClass, key: QueueKey) -> tuple[int, int, int] | None:
        """The next request of this queue: how far after the clock, its turn, and its number."""
        shares = self._pools.get((kind, model_of(key)))
        head = None if shares is None else shares.turns.first(key)
        if shares is None or head is None:
            return None
        tag, turn = head
        request = shares.callers[shares.turns.flow_of(turn)].first(key)
        if request is None:
            raise RuntimeError("a turn without a request")
        return (tag - shares.turns.clock, turn, request[1])

    def _turn_of(self, entry: _Entry) -> tuple[int, int]:
        """The rank of the turn that a waiting request would get."""
        shares = self._pools[entry.pool]
        caller = shares.callers[entry.account]
        index = caller.num_before(entry.key, caller.rank_of(entry.number))
        return shares.turns.of_flow(entry.account, entry.key)[index]

    def _num_in(self, kind: PriorityClass, key: QueueKey) -> int:
        shares = self._pools.get((kind, model_of(key)))
        return 0 if shares is None else shares.turns.num_in(key)

    def _num_before(self, kind: PriorityClass, key: QueueKey, lag: int, number: int) -> int:
        shares = self._pools.get((kind, model_of(key)))
        if shares is None:
            return 0
        return shares.turns.num_before(key, (shares.turns.clock + lag, number))

    def _rivals(self, key: QueueKey, served: Collection[QueueKey]) -> set[QueueKey]:
        """The queues whose requests could start on the same agents."""
        if key is None:
            few, many = sorted((served, self._num_in_queue), key=len)
            return {None, *(each for each in few if each in many)}
        if isinstance(key, Engine | Able | ByText | Warm | Alone):
            return {None, key.model, key}
        return {None, key, *self._engines.get(key, ())}

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._waiting.check_integrity()
        waiting = {id for id, entry in self._entries.items() if entry.turn is None}
        if any(id not in self._waiting for id in waiting) or len(waiting) != len(self._waiting):
            raise RuntimeError("some requests wait and are not known to wait")
        for shares in self._pools.values():
            shares.turns.check_integrity()
            for caller in shares.callers.values():
                caller.check_integrity()
        pools = {pool for pool, shares in self._pools.items() if shares.num_waiting}
        self._turns.check_integrity(pools)
        if pools != {self._entries[id].pool for id in waiting}:
            raise RuntimeError("pools without requests, or requests without their pool")
        if self._pools.keys() != {entry.pool for entry in self._entries.values()}:
            raise RuntimeError("pools without entries")
