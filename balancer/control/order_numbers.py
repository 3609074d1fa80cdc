"""Numbers of orders: of two, an agent obeys the one with the larger number.

Of several balancers one leads, under an epoch that is larger than all before it. An order's number
has the epoch in front, so what an earlier leader tells is ignored by whoever heard a later one.
Without a store that several share the epoch is 0, and numbers go on after the largest that agents
know.

Invariant: numbers grow, and are of the epoch that leads, if that is not 0.
"""

VERSIONS = 2**32
"""Orders in one epoch, at most; `Assign.revision` has room for 2 million epochs."""

MOST_BELIEVED = 2**52
"""Half of the numbers that an order may have."""


def epoch_of(number: int) -> int:
    """The epoch under which an order was given."""
    return number // VERSIONS


class OrderNumbers:
    """At first of epoch 0, under which a balancer that is alone leads."""

    def __init__(self) -> None:
        self.last = 0
        """The largest number that was given, or that an agent knows."""
        self._epoch: int | None = 0

    @property
    def may_tell(self) -> bool:
        """Whether agents get orders: it leads, and agents know nobody who led later."""
        return self._epoch is not None and self.outbid is None

    @property
    def outbid(self) -> int | None:
        """The later epoch that agents know, if there is one; who leads needs one beyond it."""
        known = epoch_of(self.last)
        return known if self._epoch and known > self._epoch else None

    def lead(self, epoch: int) -> None:
        """Give orders under this epoch."""
        self._epoch = epoch
        self.last = max(self.last, epoch * VERSIONS)

    def follow(self) -> None:
        """Give none."""
        self._epoch = None

    def seen(self, number: int) -> None:
        """An agent says that it obeys the order of this number.

        One that cannot have been given is not believed: orders have to find numbers beyond it.
        """
        if number < MOST_BELIEVED:
            self.last = max(self.last, number)

    def next(self) -> int:
        """The number of the next order; only where it `may_tell`."""
        if not self.may_tell:
            raise RuntimeError("an order, but another balancer leads")
        self.last += 1
        return self.last
