"""The waiting requests, and the decision which request an agent gets next.

The highest priority class goes first, except for starved classes. A class starves if it has waited
for `STARVED_AFTER` seconds behind higher classes for one model. A starved class gets every
`EVERY`th start of this model until no higher class waits.

Within a class, callers have equal shares of each model's slots, counted in tokens. The connections
of a caller without a key have equal shares too. Requests of one key or of one connection start in
order of arrival.

A request is in the queue from `arrived` to `ended`, even while it runs. The request has its own
position: `waits_for` is the key of its queue, `place` is its entry among its caller's requests,
and `turn` is the turn with which it last started. A request that returns from an agent keeps its
old position, before later requests of its caller.

The order has two levels. On the first level callers take turns, one turn for each of their
requests. On the second level the connections of a caller decide which request gets the turn. So
the place of a request is exact until another request arrives or a lower class gets its share.

Each model has its own clock, and so have the requests for any model. Tags of different clocks are
compared by their distance from their clock. The clocks of requests that compete for a slot advance
together.
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
"""The seconds for which a class waits behind higher classes before it gets a share."""

EVERY = 4
"""A starved class gets one start of this many."""

FALLING: tuple[PriorityClass, ...] = tuple(reversed(PRIORITY_CLASSES))


@dataclass(slots=True)
class _Hunger:
    """A class that has waited since the time `since`.

    `num_passed` counts the starts of higher classes after the last start of this class.
    """

    since: float
    num_passed: int = 0


class Turns:
    """Decides which priority class has the next turn."""

    __slots__ = ("_hungers",)

    def __init__(self) -> None:
        self._hungers: dict[tuple[PriorityClass, str | None], _Hunger] = {}

    def waits(self, kind: PriorityClass, pool: str | None, now: float) -> None:
        """Record that a first request of the class `kind` waits for the model `pool`."""
        self._hungers[kind, pool] = _Hunger(now)

    def empty(self, kind: PriorityClass, pool: str | None) -> None:
        """Record that no request of the class `kind` waits for the model `pool`."""
        del self._hungers[kind, pool]

    def next(
        self, kinds: Sequence[PriorityClass], pools: Collection[str | None], now: float
    ) -> PriorityClass:
        """Return the class with the next turn.

        `kinds` are the classes with waiting requests, highest first. There must be at least one.
        """
        for kind in reversed(kinds[1:]):
            hungers = self._of(kind, pools)
            if any(_is_due(hunger, now) for hunger in hungers):
                return kind
        return kinds[0]

    def started(
        self,
        kind: PriorityClass,
        others: Collection[PriorityClass],
        pools: Collection[str | None],
        now: float,
    ) -> None:
        """Record that a request of `kind` started while classes `others` waited for its agents."""
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
        """Raise `RuntimeError` if other classes than `waiting` are recorded; tests call this."""
        if self._hungers.keys() != set(waiting):
            raise RuntimeError(f"{self._hungers.keys()} are said to wait, and {waiting} do")


def _is_starved(hunger: _Hunger, now: float) -> bool:
    return now - hunger.since >= STARVED_AFTER


def _is_due(hunger: _Hunger, now: float) -> bool:
    return _is_starved(hunger, now) and hunger.num_passed >= EVERY - 1


Pool = tuple[PriorityClass, str | None]
"""A priority class and a model. `None` stands for requests that take any model."""


@dataclass(slots=True)
class _Shares(Generic[D]):
    """The turns of callers in one pool, and the requests of each caller in their order."""

    turns: FairOrder[Account, QueueKey, None] = field(default_factory=FairOrder)
    callers: dict[Account, FairOrder[Hashable, QueueKey, D]] = field(default_factory=dict)
    num_waiting: int = 0


class FairQueue(Generic[D]):
    """The fair queue, which knows no agents. Every change costs O(log n)."""

    def __init__(self) -> None:
        self._pools: dict[Pool, _Shares[D]] = {}
        self._num_in_queue: Tally[QueueKey] = Tally()
        """The number of waiting requests in each queue."""
        self._engines: dict[str, set[Engine]] = {}
        """The engines for which requests wait, by model."""
        self.alone: set[Alone] = set()
        """The agents for which isolated requests wait."""
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
        """Add a new request."""
        request.waits_for = request.queue_key
        self._waits(request, self._add(request), now)

    def started(self, request: D, keys: Collection[QueueKey], now: float) -> None:
        """Record that a waiting request got a slot of an agent that serves the queues `keys`."""
        kind, account = request.kind, request.account
        shares, place = self._leaves(request), request.place
        turn = request.turn = shares.turns.of_flow(account, request.waits_for, 0)
        shares.callers[account].take(_known(place))
        pools = {model_of(key) for key in keys}
        self._take(turn, shares, [(kind, pool) for pool in pools])
        others = [other for other in self._kinds(keys) if other != kind]
        self._turns.started(kind, others, pools, now)

    def _take(
        self, turn: Item[Account, QueueKey, None], shares: _Shares[D], pools: Iterable[Pool]
    ) -> None:
        """Take a turn, and advance the clocks of all pools that competed for the turn."""
        lag = shares.turns.extract(turn)
        known = {id(each): each for pool in pools if (each := self._pools.get(pool)) is not None}
        orders = [each.turns for each in ({id(shares): shares} | known).values()]
        lag += share_of(turn.cost, sum(order.num_flows for order in orders))
        for order in orders:
            order.clock += lag

    def came_back(self, request: D, key: QueueKey, now: float) -> None:
        """Let a request that ran wait again, in its old queue or for an engine of its model."""
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
        """Move a waiting request to another queue of the same model, with its old tags."""
        shares = self._pools[_pool(request)]
        turn = self._turn_of(request, shares)
        self._leaves(request)
        request.waits_for = key
        shares.turns.move(turn, key)
        shares.callers[request.account].move(_known(request.place), key)
        self._waits(request, shares, now)

    def ended(self, request: D, charge: int) -> None:
        """Remove a request that has ended and costs `charge`. A waiting request costs nothing."""
        if request.turn is None:
            self._leaves(request)
        self._forget(request, charge)

    def renamed(self, request: D, key: QueueKey, now: float) -> None:
        """Move a waiting request to the queue of another model, before later requests there."""
        self._leaves(request)
        self._forget(request, 0)
        request.waits_for = key
        self._waits(request, self._add(request, is_next=True), now)

    # ---- which is next

    def first(self, keys: Sequence[QueueKey], now: float) -> D | None:
        """Return the next request for an agent that serves the queues `keys`."""
        kinds = self._kinds(keys)
        if not kinds:
            return None
        kind = kinds[0]
        if len(kinds) > 1:
            kind = self._turns.next(kinds, {model_of(key) for key in keys}, now)
        heads = [head for key in keys if (head := self._head(kind, key)) is not None]
        return min(heads)[2]

    def place(self, request: D, served: Collection[QueueKey]) -> int:
        """Return the place of the request, from 1, among requests that the same agents can start.

        A request for any model competes with the requests of all queues in `served`.
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
        """Return the requests in queues that are not in `served`, in order of arrival.

        A request that is held for one agent is not among them, because this agent can start the
        request.
        """
        queues = {key for key in self._num_in_queue if not isinstance(key, Warm)}
        lost = {key for key in queues if agents_of(key) not in served}
        return sorted(each for each in self if each.waits_for in lost) if lost else []

    def num_of(self, kind: PriorityClass) -> int:
        """Return the number of waiting requests of a class."""
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
        """Return the classes with waiting requests in the queues `keys`, highest first."""
        if not self._num:
            return []
        kinds = [kind for kind in FALLING if self._num_waiting[kind]]
        return [kind for kind in kinds if any(self._num_in(kind, key) for key in keys)]

    def _head(self, kind: PriorityClass, key: QueueKey) -> tuple[int, int, D] | None:
        """Return a queue's next request, its tag's distance from the clock, and its turn."""
        shares = self._pools.get((kind, model_of(key)))
        turn = None if shares is None else shares.turns.first(key)
        if shares is None or turn is None:
            return None
        place = _known(shares.callers[turn.flow].first(key))
        return (turn.tag - shares.turns.clock, turn.number, place.of)

    def _turn_of(self, request: D, shares: _Shares[D]) -> Item[Account, QueueKey, None]:
        """Return the turn with which a waiting request would start."""
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
        """Return the queues whose requests could start on the same agents."""
        if key is None:
            few, many = sorted((served, self._num_in_queue), key=len)
            return {None, *(each for each in few if each in many)}
        if isinstance(key, str):
            return {None, key, *self._engines.get(key, ())}
        return {None, key.model, key}

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
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
