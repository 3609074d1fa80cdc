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
    """An item of dispatch. It waits until it has a slot of the agent `slot`.

    `arrival` is its number in order of arrival.

    `waits_for` is the queue in which it waits, within the share of its `account` and `flow`.
    `fair_queue.py` explains `place` and `turn`. Fields with a default keep it for parts of
    queries, which any agent of the model answers; `Request` explains them.
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
        """Return whether this item arrived before the other."""
        return self.arrival < other.arrival

    @property
    def queue_key(self) -> QueueKey:
        """The key of the queue in which the item waits, unless it is held for one agent."""
        raise NotImplementedError

    @property
    def flow(self) -> Hashable:
        """The item's flow within the share of its account."""
        raise NotImplementedError

    @property
    def chain(self) -> PrefixChain:
        """The prefixes of the prompt, which find the agents that have them cached."""
        return NO_CHAIN

    @property
    def most_answer(self) -> int | None:
        """The maximum tokens of the answer, if the request limits them."""
        return None
