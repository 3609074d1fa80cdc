"""An item of dispatch: a request, or a part of a query, with its place in the queue."""

from collections.abc import Hashable
from typing import Any

from ....shared.inference import PriorityClass, RequestId
from ....shared.inference.prefix_chain import NO_CHAIN, PrefixChain
from ..caller import Account
from ..decisions import LinkId
from .eligibility import Able, ByText, Engine, QueueKey
from .fair_order import Item


class Dispatched:
    """It came as number `arrival`, has a slot of the agent `slot`, or waits.

    It waits for the agents that `waits_for` means, in its `account`'s share and that of its `flow`
    there. `place`, `turn`: see `fair_queue.py`. What has a value here is so of parts of queries,
    which any agent of their model answers. See `Request` for the rest.
    """

    __slots__ = ()

    id: RequestId
    account: Account
    expected_charge: int
    arrival: int
    slot: LinkId | None
    waits_for: QueueKey
    place: Item[Hashable, QueueKey, Any] | None
    turn: Item[Account, QueueKey, None] | None
    kind: PriorityClass = "default"
    cache_key: int | None = None
    bound_to: Engine | None = None
    able: Able | ByText | None = None
    is_isolated: bool = False
    held_for: LinkId | None = None
    waited_for: LinkId | None = None
    was_held: bool = False
    emptied: LinkId | None = None
    may_be_dropped: bool = False

    def __lt__(self, other: "Dispatched") -> bool:
        """Whether it arrived before the other."""
        return self.arrival < other.arrival

    @property
    def queue_key(self) -> QueueKey:
        """The key of the queue it waits in, unless it is held for one agent."""
        raise NotImplementedError

    @property
    def flow(self) -> Hashable:
        """The flow within its account's share."""
        raise NotImplementedError

    @property
    def chain(self) -> PrefixChain:
        """The beginnings of its prompt, by which agents are found that hold them."""
        return NO_CHAIN

    @property
    def most_answer(self) -> int | None:
        """The most tokens of its answer, if it says how many."""
        return None
