"""The requests that wait, and which of them is next for an agent.

The highest class goes first, but for a share of those that starve: a class that has waited for
`STARVED_AFTER` seconds behind higher ones, for one model, gets every `EVERY`th start of that model
from then on, until nothing higher waits. Within a class callers have equal shares of each model's
slots, counted in tokens, and so have the connections of one caller that has no key. Within a
connection, or a key, requests start in the order they came.

A request is here from `arrived` to `ended`. It waits, or runs and is only counted. Where it stands
is in the request itself: what it waits for (`waits_for`), its `place` among those of its caller,
and the `turn` with which it started the last time. One that comes
back waits again where it was when it started, before whatever its caller has sent since.

Two levels make the order. A caller has as many turns as requests; turns have the tags, by which
callers take turns with each other. A second order, of connections, says which request gets the
caller's next turn. So a place is known exactly: as if no other request came, and no lower class had
a share.

Models have clocks of their own, and so have requests that take any model. A tag counts by how
far it is after its clock, and the clocks of requests that compete for a slot go on alike.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

from .....shared.inference import PRIORITY_CLASSES, PriorityClass
from ...caller import Account
from ...tally import Tally
from ..dispatched import Dispatched
from ..eligibility import (
    Alone,
    Engine,
    QueueKey,
    Warm,
    agents_of,
    model_of,
)
from ..fair_order import FairOrder, Item, share_of
from ..request import D

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
    """Decides which class has the next turn.

    A pool is the target of waiting requests: a model by name, or `None` for any.
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
class _Shares(Generic[D]):
    """One class and model: the callers' turns, and each caller's requests in their order."""

    turns: FairOrder[Account, QueueKey, None] = field(default_factory=FairOrder)
    callers: dict[Account, FairOrder[Hashable, QueueKey, D]] = field(default_factory=dict)
    num_waiting: int = 0


class FairQueue(Generic[D]):
    """Knows no agents. Every change costs O(log n)."""

    def __init__(self) -> None:
        self._pools: dict[Pool, _Shares[D]] = {}
        self._num_in_queue: Tally[QueueKey] = Tally()
        """How many wait in each queue."""
        self._engines: dict[str, set[Engine]] = {}
        """The engines that requests wait for, by model."""
        self.alone: set[Alone] = set()
        """What those wait for that need an agent without others."""
        self._num_waiting: dict[PriorityClass, int] = dict.fromkeys(FALLING, 0)
        self._num = 0
        self._turns = Turns()

    def __len__(self) -> int:
        """The number of waiting requests."""
        return self._num

    def __iter__(self) -> Iterator[D]:
        """The waiting requests, in no order."""
        callers = (caller for shares in self._pools.values() for caller in shares.callers.values())
        return (request for caller in callers for request in caller)

    # ---- requests come and go

    def arrived(self, request: D, now: float) -> None:
        """A new request waits."""
        request.waits_for = request.queue_key
        self._waits(request, self._add(request), now)

    def started(self, request: D, keys: Iterable[QueueKey], now: float) -> None:
        """A request that waits gets a slot of an agent that takes those of `keys`."""
        kind, account = request.kind, request.account
        shares, place = self._leaves(request), request.place
        turn = request.turn = shares.turns.of_flow(account, request.waits_for, 0)
        shares.callers[account].take(_known(place))
        keys = list(keys)
        pools = {model_of(key) for key in keys}
        self._take(turn, shares, [(kind, pool) for pool in pools])
        others = [other for other in self._kinds(keys) if other != kind]
        self._turns.started(kind, others, pools, now)

    def _take(
        self, turn: Item[Account, QueueKey, None], shares: _Shares[D], pools: Iterable[Pool]
    ) -> None:
        """A turn is taken: clocks of all that competed for it go on alike (`FairOrder.take`)."""
        lag = shares.turns.extract(turn)
        known = {id(each): each for pool in pools if (each := self._pools.get(pool)) is not None}
        orders = [each.turns for each in ({id(shares): shares} | known).values()]
        lag += share_of(turn.cost, sum(order.num_flows for order in orders))
        for order in orders:
            order.clock += lag

    def came_back(self, request: D, key: QueueKey, now: float) -> None:
        """A request that ran waits again, for the same or for an engine of that model."""
        if request.turn is None:
            raise ValueError(f"request {request.id} waits already")
        if model_of(key) != model_of(request.waits_for):
            self._forget(request, request.expected_charge)
            request.waits_for = key
            shares = self._add(request, is_next=True)
        else:
            request.waits_for = key
            shares = self._pools[_pool(request)]
            shares.callers[request.account].put_back(_known(request.place), key)
            shares.turns.put_back(request.turn, key)
            request.turn = None
        self._waits(request, shares, now)

    def changed(self, request: D, key: QueueKey, now: float) -> None:
        """A request that waits now waits for other agents of the same model, with the same tags."""
        shares = self._pools[_pool(request)]
        turn = self._turn_of(request, shares)
        self._leaves(request)
        request.waits_for = key
        shares.turns.move(turn, key)
        shares.callers[request.account].move(_known(request.place), key)
        self._waits(request, shares, now)

    def ended(self, request: D, charge: int) -> None:
        """A request is over, and counts `charge`; one that waits counts nothing."""
        if request.turn is None:
            self._leaves(request)
        self._forget(request, charge)

    def renamed(self, request: D, key: QueueKey, now: float) -> None:
        """A request that waits waits for another model, before those that came there later."""
        self._leaves(request)
        self._forget(request, 0)
        request.waits_for = key
        self._waits(request, self._add(request, is_next=True), now)

    # ---- which is next

    def first(self, keys: Sequence[QueueKey], now: float) -> D | None:
        """The next request for an agent that takes those of `keys`."""
        kinds = self._kinds(keys)
        if not kinds:
            return None
        kind = kinds[0]
        if len(kinds) > 1:
            kind = self._turns.next(kinds, {model_of(key) for key in keys}, now)
        heads = [head for key in keys if (head := self._head(kind, key)) is not None]
        return min(heads)[2]

    def place(self, request: D, served: Collection[QueueKey]) -> int:
        """Its place, from 1, among those that the same agents could start.

        A request for any model counts those for what is in `served`.
        """
        kind, key = request.kind, request.waits_for
        shares = self._pools[_pool(request)]
        turn = self._turn_of(request, shares)
        lag = turn.tag - shares.turns.clock
        rivals = self._rivals(key, served)
        higher = FALLING[: FALLING.index(kind)]
        before = sum(self._num_in(each, rival) for each in higher for rival in rivals)
        before += sum(self._num_before(kind, rival, lag, turn.number) for rival in rivals)
        return 1 + before

    # ---- which waits for what

    def stranded(self, served: Collection[QueueKey]) -> list[D]:
        """Requests of queues that are not in `served`, first arrived first.

        An agent that is waited for serves.
        """
        queues = {key for key in self._num_in_queue if not isinstance(key, Warm)}
        lost = {key for key in queues if agents_of(key) not in served}
        return sorted(each for each in self if each.waits_for in lost) if lost else []

    def num_of(self, kind: PriorityClass) -> int:
        """The number of waiting requests of a class."""
        return self._num_waiting[kind]

    # ---- inside

    def _add(self, request: D, *, is_next: bool = False) -> _Shares[D]:
        number, account, key = request.arrival, request.account, request.waits_for
        charge = request.expected_charge
        pool = _pool(request)
        shares = self._pools.get(pool)
        if shares is None:
            shares = self._pools[pool] = _Shares()
        caller = shares.callers.get(account)
        if caller is None:
            caller = shares.callers[account] = FairOrder()
        shares.turns.add(Item(number, account, key, charge, None), is_next=is_next)
        request.place = Item(number, request.flow, key, charge, request)
        request.turn = None
        caller.add(request.place, is_next=is_next)
        return shares

    def _forget(self, request: D, charge: int) -> None:
        pool, account, place = _pool(request), request.account, _known(request.place)
        shares = self._pools[pool]
        caller = shares.callers[account]
        if request.turn is None:
            caller.withdraw(place)
            shares.turns.withdraw(shares.turns.of_flow(account, request.waits_for, -1))
        else:
            caller.end(place, charge)
            shares.turns.end(request.turn, charge)
        request.place = None
        if not caller:
            del shares.callers[account]
        if not shares.turns:
            del self._pools[pool]

    def _waits(self, request: D, shares: _Shares[D], now: float) -> None:
        kind, key = request.kind, request.waits_for
        self._num += 1
        self._num_waiting[kind] += 1
        shares.num_waiting += 1
        if shares.num_waiting == 1:
            self._turns.waits(*_pool(request), now)
        self._num_in_queue.add(key, 1)
        if isinstance(key, Engine):
            self._engines.setdefault(key.model, set()).add(key)
        elif isinstance(key, Alone):
            self.alone.add(key)

    def _leaves(self, request: D) -> _Shares[D]:
        kind, key = request.kind, request.waits_for
        self._num -= 1
        self._num_waiting[kind] -= 1
        pool = _pool(request)
        shares = self._pools[pool]
        shares.num_waiting -= 1
        if not shares.num_waiting:
            self._turns.empty(*pool)
        self._num_in_queue.add(key, -1)
        if isinstance(key, (Alone, Engine)) and key not in self._num_in_queue:
            self._last_left(key)
        return shares

    def _last_left(self, key: Alone | Engine) -> None:
        if isinstance(key, Alone):
            self.alone.remove(key)
            return
        self._engines[key.model].remove(key)
        if not self._engines[key.model]:
            del self._engines[key.model]

    def _kinds(self, keys: Iterable[QueueKey]) -> list[PriorityClass]:
        """The classes of the requests that wait in the queues `keys`, highest first."""
        if not self._num:
            return []
        kinds = [kind for kind in FALLING if self._num_waiting[kind]]
        return [kind for kind in kinds if any(self._num_in(kind, key) for key in keys)]

    def _head(self, kind: PriorityClass, key: QueueKey) -> tuple[int, int, D] | None:
        """The next request of this queue: how far after the clock, its turn, and itself."""
        shares = self._pools.get((kind, model_of(key)))
        turn = None if shares is None else shares.turns.first(key)
        if shares is None or turn is None:
            return None
        place = _known(shares.callers[turn.flow].first(key))
        return (turn.tag - shares.turns.clock, turn.number, place.of)

    def _turn_of(self, request: D, shares: _Shares[D]) -> Item[Account, QueueKey, None]:
        """The turn that a waiting request would get."""
        place, key, account = _known(request.place), request.waits_for, request.account
        index = shares.callers[account].num_before(key, place.tag, place.number)
        return shares.turns.of_flow(account, key, index)

    def _num_in(self, kind: PriorityClass, key: QueueKey) -> int:
        shares = self._pools.get((kind, model_of(key)))
        return 0 if shares is None else shares.turns.num_in(key)

    def _num_before(self, kind: PriorityClass, key: QueueKey, lag: int, number: int) -> int:
        shares = self._pools.get((kind, model_of(key)))
        if shares is None:
            return 0
        return shares.turns.num_before(key, shares.turns.clock + lag, number)

    def _rivals(self, key: QueueKey, served: Collection[QueueKey]) -> set[QueueKey]:
        """The queues whose requests could start on the same agents."""
        if key is None:
            few, many = sorted((served, self._num_in_queue), key=len)
            return {None, *(each for each in few if each in many)}
        if isinstance(key, str):
            return {None, key, *self._engines.get(key, ())}
        return {None, key.model, key}

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        for shares in self._pools.values():
            shares.turns.check_integrity()
            for caller in shares.callers.values():
                caller.check_integrity()
        waiting = list(self)
        if len(waiting) != self._num or any(each.turn is not None for each in waiting):
            raise RuntimeError("some requests wait and are not known to wait")
        pools = {pool for pool, shares in self._pools.items() if shares.num_waiting}
        self._turns.check_integrity(pools)
        if pools != {_pool(each) for each in waiting}:
            raise RuntimeError("pools without requests, or requests without their pool")


def _pool(request: Dispatched) -> Pool:
    return (request.kind, model_of(request.waits_for))


def _known(
    place: Item[Hashable, QueueKey, Any] | None,
) -> Item[Hashable, QueueKey, Any]:
    if place is None:
        raise ValueError("a request that never arrived, or has ended")
    return place
