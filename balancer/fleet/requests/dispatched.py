"""An item of dispatch: a request or a part of a query, with its place in the queue."""

from collections.abc import Hashable
from typing import Any

from ....shared.inference import PriorityClass, RequestId
from ....shared.inference.prefix_chain import NO_CHAIN, PrefixChain
from ..caller import Account
from ..decisions import LinkId
from .eligibility import Able, ByText, Engine, QueueKey
from .fair_order import Item


class Dispatched:
    """An item of dispatch, which waits until it has a slot of the agent `slot`.

    - `arrival`: its number in the order of arrival.
    - `waits_for`: the queue in which it waits. Its `account` and `flow` share this queue with
      others.
    - `place`, `turn`: explained in `fair_queue.py`.

    Fields with a default keep this default for parts of queries. `Request` explains these fields.
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
        """Return whether this item arrived earlier than `other`."""
        return self.arrival < other.arrival

    @property
    def queue_key(self) -> QueueKey:
        """The queue in which the item waits if it is not held for one agent."""
        raise NotImplementedError

    @property
    def flow(self) -> Hashable:
        """The flow of the item within the share of its account."""
        raise NotImplementedError

    @property
    def chain(self) -> PrefixChain:
        """The prefixes of the prompt, which identify the agents that have them cached."""
        return NO_CHAIN

    @property
    def most_answer(self) -> int | None:
        """The maximum tokens of the answer, if the request limits them."""
        return None
