"""Fair shares of a limited pool: how much each holder may have, and what a full pool evicts.

A *holder* is an access key, an address or an owner that shares the pool.

**Pools that refuse** (`Shares.claim`) hold things in use, such as a body that is being read. A
holder may have at most as much as is still free. So one holder gets half of the pool, two holders
get a third each, and a new holder always finds as much free as each other holder has. This is the
dynamic threshold of shared-memory switches with a factor of 1 (Choudhury and Hahne, "Dynamic queue
length thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2),
1998). Fixed shares would leave most of the pool unused if there are few holders.

**Pools that evict** (`FairEviction`) hold things for later, such as stored answers. One holder may
fill such a pool. A full pool evicts the least recently used item of the holder with most.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, Literal, TypeVar, get_args

from .priority_queue import PriorityQueue

K = TypeVar("K", bound=Hashable)
I = TypeVar("I", bound=Hashable)  # noqa: E741

Refusal = Literal["share", "full", "evicted"]
"""Why an item has no room: its holder's share is used up, the pool is full, or it was evicted."""

EVERYBODY = ""
"""The holder of everything if the fleet has no keys."""

REFUSALS: tuple[Refusal, ...] = get_args(Refusal)


class Amounts(Generic[K]):
    """The amount of each holder, and the holder with the largest amount.

    Amounts change with each request, but the largest is needed only when a pool is full. So
    holders are sorted only then.
    """

    __slots__ = (
        "_by_amount",
        "_changed",
        "_held",
        "_holders",
        "_num_holders",
        "_numbers",
        "total",
    )

    def __init__(self) -> None:
        self._held: dict[K, int] = {}
        self._numbers: dict[K, int] = {}
        self._holders: dict[int, K] = {}
        self._num_holders = 0
        self._by_amount: PriorityQueue[int, float] = PriorityQueue()
        self._changed: set[int] = set()
        """The numbers of holders with outdated places in `_by_amount`."""
        self.total = 0

    def __getitem__(self, holder: K) -> int:
        return self._held.get(holder, 0)

    def __len__(self) -> int:
        """Return the number of holders with an amount."""
        return len(self._held)

    def __iter__(self) -> Iterator[K]:
        return iter(self._held)

    def add(self, holder: K, amount: int) -> None:
        """Add `amount`, which may be negative, to a holder.

        Raises `ValueError` if the result would be negative.
        """
        had = self._held.get(holder, 0)
        has = had + amount
        if has < 0:
            raise ValueError(f"{-amount} given back by {holder}, which has {had}")
        if not amount:
            return
        self.total += amount
        if not had:
            self._num_holders += 1
            self._numbers[holder] = self._num_holders
            self._holders[self._num_holders] = holder
        number = self._numbers[holder]
        self._changed.add(number)
        if has:
            self._held[holder] = has
            return
        del self._held[holder], self._numbers[holder], self._holders[number]
        if number not in self._by_amount:
            self._changed.remove(number)

    def largest(self) -> K | None:
        """Return the holder with the largest amount. Among equal holders, return the first."""
        for number in self._changed:
            if number in self._holders:
                self._by_amount.set(number, -float(self._held[self._holders[number]]))
            else:
                self._by_amount.remove(number)
        self._changed.clear()
        first = self._by_amount.first()
        return None if first is None else self._holders[first[1]]

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        self.largest()
        self._by_amount.check_integrity()
        if self.total != sum(self._held.values()):
            raise RuntimeError("the amounts do not add up")
        if {number: holder for holder, number in self._numbers.items()} != self._holders:
            raise RuntimeError("the holders and their numbers differ")
        if set(self._by_amount) != set(self._holders) or self._numbers.keys() != self._held.keys():
            raise RuntimeError("holders are not where they belong")
        if any(amount <= 0 for amount in self._held.values()):
            raise RuntimeError("a holder without anything is here")


class Shares(Generic[K]):
    """A pool of `bound` bytes or items, which refuses holders whose share is used up.

    `caps` limit single holders further. The holder `everybody` may use the whole pool, because no
    other holder exists then. `num_refused` counts the refusals since the start.
    """

    __slots__ = ("_amounts", "_caps", "_everybody", "bound", "num_refused")

    def __init__(
        self, bound: int, *, caps: Mapping[K, int] | None = None, everybody: K | None = None
    ) -> None:
        self.bound = bound
        self._everybody = everybody
        self.num_refused: dict[Refusal, int] = dict.fromkeys(REFUSALS, 0)
        self._caps = dict(caps or {})
        self._amounts: Amounts[K] = Amounts()

    @property
    def total(self) -> int:
        """The sum of all holders' amounts."""
        return self._amounts.total

    @property
    def free(self) -> int:
        """The amount that is free."""
        return max(0, self.bound - self.total)

    @property
    def num_holders(self) -> int:
        """The number of holders with an amount."""
        return len(self._amounts)

    def held(self, holder: K) -> int:
        """Return the amount of one holder."""
        return self._amounts[holder]

    def largest(self) -> K | None:
        """Return the holder with the largest amount. Among equal holders, return the first."""
        return self._amounts.largest()

    def refusal(self, holder: K, amount: int) -> Refusal | None:
        """Return why the holder may not have `amount` more, or `None`; count no refusal."""
        left = self.bound - self.total - amount
        if left < 0:
            return "full"
        if holder == self._everybody:
            return None
        would_have = self.held(holder) + amount
        return "share" if would_have > min(left, self._caps.get(holder, left)) else None

    @property
    def share(self) -> int:
        """The maximum amount of a single holder."""
        return self.bound // 2

    def may_take(self, holder: K, amount: int) -> bool:
        """Whether the holder may have `amount` more."""
        return self.refusal(holder, amount) is None

    def is_fair(self, holder: K, amount: int) -> bool:
        """Return whether `amount` fits into the pool while no other holder has more."""
        if self.total + amount <= self.bound:
            return True
        others = sum(min(self.held(each), amount) for each in self._amounts if each != holder)
        return others + amount <= self.bound

    def refuses(self, holder: K, amount: int) -> bool:
        """Return whether the holder may not have `amount` more, and count a refusal."""
        why = self.refusal(holder, amount)
        if why is None:
            return False
        self.num_refused[why] += 1
        return True

    def claim(self, holder: K, amount: int) -> bool:
        """Take `amount` for the holder if the holder may have it, or else count a refusal.

        Returns whether the amount was taken.
        """
        if self.refuses(holder, amount):
            return False
        self.take(holder, amount)
        return True

    def take(self, holder: K, amount: int) -> None:
        """Take `amount` for the holder without a check, such as for an accepted request."""
        self._amounts.add(holder, amount)

    def give_back(self, holder: K, amount: int) -> None:
        """Give back `amount` of the holder.

        Raises `ValueError` if the holder has less than `amount`.
        """
        self._amounts.add(holder, -amount)

    def recount(self, amounts: Mapping[K, int]) -> None:
        """Replace the amounts of all holders, because other balancers have changed them too."""
        self._amounts = Amounts()
        for holder, amount in amounts.items():
            self._amounts.add(holder, amount)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        self._amounts.check_integrity()


class Holding(Generic[K]):
    """The amount of one item in its holder's share, until the item is given back."""

    __slots__ = ("_holder", "_shares", "amount")

    def __init__(self, shares: Shares[K], holder: K) -> None:
        self.amount = 0
        self._shares = shares
        self._holder = holder

    def claim(self, amount: int) -> bool:
        """Take `amount` more if the holder may have it. Returns whether the amount was taken."""
        is_granted = self._shares.claim(self._holder, amount)
        self.amount += amount * is_granted
        return is_granted

    def may_ever(self, amount: int) -> bool:
        """Return whether the holder could have `amount` if it had nothing else."""
        return self.amount + amount <= self._shares.share

    def give_back(self, amount: int | None = None) -> None:
        """Give back `amount`, or everything if `amount` is `None`.

        Raises `ValueError` if the item holds less than `amount`.
        """
        amount = self.amount if amount is None else amount
        if not amount:
            return
        if amount > self.amount:
            raise ValueError(f"{amount} given back of {self.amount}")
        self._shares.give_back(self._holder, amount)
        self.amount -= amount

    def move_to(self, holder: K) -> None:
        """Move the amount to another holder, without a check."""
        self._shares.give_back(self._holder, self.amount)
        self._shares.take(holder, self.amount)
        self._holder = holder


class FairEviction(Generic[K, I]):
    """Chooses the item that a full pool evicts: the oldest item of the holder with most.

    The pool is full if its items together exceed `sizes.bound`, or their number exceeds
    `counts.bound`. Call `evict` after each change until it returns `None`.
    """

    __slots__ = ("_items", "_owned", "counts", "sizes")

    def __init__(self, max_size: int, max_items: int) -> None:
        self.sizes: Shares[K] = Shares(max_size)
        self.counts: Shares[K] = Shares(max_items)
        self._items: dict[I, tuple[K, int]] = {}
        self._owned: dict[K, OrderedDict[I, None]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def add(self, item: I, holder: K, size: int) -> None:
        """Add an item as the most recently used.

        Raises `ValueError` if it is in the pool already.
        """
        if item in self._items:
            raise ValueError(f"{item} is here already")
        self._items[item] = (holder, size)
        self._owned.setdefault(holder, OrderedDict())[item] = None
        self.sizes.take(holder, size)
        self.counts.take(holder, 1)

    def claim(self, item: I, holder: K, size: int) -> bool:
        """Add an item unless the pool would evict it at once; replace an item of the same name.

        Returns whether the item was added. If the item is larger than its holder's fair share, it
        is refused and evicts nothing.
        """
        for shares, amount in ((self.sizes, size), (self.counts, 1)):
            if not shares.is_fair(holder, amount):
                shares.num_refused["share"] += 1
                return False
        if item in self._items:
            self.remove(item)
        self.add(item, holder, size)
        return True

    def grow(self, item: I, size: int) -> None:
        """Add `size`, which may be negative, to the size of the item."""
        holder, before = self._items[item]
        self.sizes.take(holder, size)
        self._items[item] = (holder, before + size)

    def use(self, item: I) -> None:
        """Mark the item as the most recently used item of its holder."""
        holder, _ = self._items[item]
        self._owned[holder].move_to_end(item)

    def remove(self, item: I) -> None:
        """Remove an item. Raises `KeyError` if it is not in the pool."""
        holder, size = self._items.pop(item)
        owned = self._owned[holder]
        del owned[item]
        if not owned:
            del self._owned[holder]
        self.sizes.give_back(holder, size)
        self.counts.give_back(holder, 1)

    def evict(self) -> I | None:
        """Evict and return the next item, if the pool is full, and count the eviction."""
        for shares in (self.sizes, self.counts):
            if shares.total > shares.bound and (holder := shares.largest()) is not None:
                item = next(iter(self._owned[holder]))
                self.remove(item)
                shares.num_refused["evicted"] += 1
                return item
        return None

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        self.sizes.check_integrity()
        self.counts.check_integrity()
        sizes: dict[K, int] = {}
        for holder, size in self._items.values():
            sizes[holder] = sizes.get(holder, 0) + size
        if any(self.sizes.held(holder) != size for holder, size in sizes.items()):
            raise RuntimeError("the sizes of items do not add up")
        owned = {item: holder for holder, items in self._owned.items() for item in items}
        if owned != {item: holder for item, (holder, _) in self._items.items()}:
            raise RuntimeError("an item is not with its holder")
        if any(self.counts.held(holder) != len(items) for holder, items in self._owned.items()):
            raise RuntimeError("the numbers of items do not add up")
