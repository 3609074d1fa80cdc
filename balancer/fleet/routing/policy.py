"""The interface of a routing policy, which chooses the agent of a request.

`policies/` has the policies.

A policy knows neither time nor queues. Dispatch asks it, and reports what happens to requests.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ....shared.inference import RequestId
from ....shared.inference.prefix_chain import PrefixChain
from ....shared.inference.prefix_peers import Peer
from ....shared.reports.statistics import Fetches
from ..caller import ANONYMOUS, Account
from ..decisions import LinkId
from ..view import RoutingView
from .fetches import Fetching
from .prefix_index import Home
from .rates import Measurement

LONGEST_WAIT = 30.0
"""Seconds for which a request waits for one agent at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """An agent's load: requests `running` in its `slots`, and requests `waiting` for this agent
    only.

    `backlog`: prompt tokens that the agent still has to compute. `is_cache_full`: each new prefix
    evicts another.
    """

    running: int
    slots: int
    has_free_slot: bool
    backlog: float = 0.0
    waiting: int = 0
    is_cache_full: bool = False

    @property
    def share(self) -> float:
        """The share of the agent's slots that are taken."""
        return self.running / self.slots


class Choice(NamedTuple):
    """The chosen agent `link`.

    If it has no free slot, it is worth waiting `patience` seconds for it.

    `fetching`: the agent should first fetch this prefix from another agent.
    """

    link: LinkId
    patience: float = 0.0
    fetching: Fetching | None = None


LoadOf = Callable[[LinkId], Load | None]
"""An agent's load; `None`: it may not have the request."""


class RoutingPolicy:
    """A policy. It decides in `rank` and `choose`, and may learn from all other methods."""

    def __init__(self, longest_wait: float = LONGEST_WAIT) -> None:
        """A request may wait for one agent for at most `longest_wait` seconds."""

    def rank(self, link: LinkId, load: Load) -> float:
        """Return the rank of an agent for an average request; lower is better.

        Agents with equal ranks take turns.
        """
        raise NotImplementedError

    def choose(
        self,
        chain: PrefixChain,
        *,
        load_of: LoadOf,
        free: LinkId | None,
        cache_key: int | None = None,
        most_answer: int | None = None,
        may_wait: bool = True,
    ) -> Choice | None:
        """The best agent for a request; `free` is the one of lowest rank with a free slot.

        Returns `None` if no agent has a free slot. The request then stays in the queue, and the
        first agent that frees a slot gets it. The agent chosen has a free slot if `may_wait` is
        false. Requests under one `cache_key` belong together.
        """
        raise NotImplementedError

    @property
    def view(self) -> RoutingView:
        """Return statistics of the choices so far."""
        return RoutingView()

    def seconds_to_first_token(self, link: LinkId) -> float | None:
        """Return the seconds until an agent has computed its present prompts, if known."""
        return None

    # ---- what becomes of requests

    def started(
        self,
        id: RequestId,
        link: LinkId,
        chain: PrefixChain,
        *,
        cache_key: int | None = None,
        account: Account = ANONYMOUS.account,
        waited_for: LinkId | None = None,
        fetching: Fetching | None = None,
    ) -> None:
        """Record that an agent got a request of `account`, which may have waited for one agent.

        `fetching`: the agent fetches a part of the prompt.
        """

    def prompt_read(self, id: RequestId, num_tokens: int, num_cached: int) -> None:
        """Record that an agent has computed a request's prompt, of which it had `num_cached` tokens
        cached."""

    def ended(self, id: RequestId, end: Measurement | None) -> bool:
        """Record that a request has left its agent; `end` is given if it ended well.

        Returns whether ranks have changed.
        """
        return False

    # ---- what becomes of agents

    def agent_is(
        self,
        link: LinkId,
        model: str | None,
        most_tokens: float,
        peer: Peer | None = None,
        home: Home | None = None,
    ) -> None:
        """Record an agent's model, an estimate of its cache, and the address at which it lends.

        The agent still has what its `home` had cached when it left.
        """

    def agent_left(self, link: LinkId) -> None:
        """Forget an agent that has left."""

    def cache_is(self, link: LinkId, num_tokens: int) -> None:
        """Record that an agent's cache holds at least `num_tokens`."""

    def evicted(self, link: LinkId, keys: Sequence[int] | None) -> None:
        """Record that an agent has evicted the prefixes `keys`; `None` stands for all prefixes."""

    def fetched(self, link: LinkId, done: Fetches) -> None:
        """Record the totals of an agent's fetches so far."""

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
