"""The interface of a routing policy, which chooses the agent for each request.

The package `policies` contains the policies. A policy has no clock and no queues. Dispatch calls
the policy, and reports to the policy what happens to requests.
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
"""The maximum seconds for which a request waits for one particular agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of an agent: `running` requests in its `slots`, and `waiting` requests held for it.

    The agent still has to compute `backlog` prompt tokens. If `is_cache_full`, each new prefix
    evicts another prefix.
    """

    running: int
    slots: int
    has_free_slot: bool
    backlog: float = 0.0
    waiting: int = 0
    is_cache_full: bool = False

    @property
    def share(self) -> float:
        """The share of the agent's slots that are in use."""
        return self.running / self.slots


class Choice(NamedTuple):
    """The choice of the agent `link` for a request.

    If the agent has no free slot, the request should wait up to `patience` seconds for a slot. If
    `fetching` is set, the agent should first fetch this prefix from another agent.
    """

    link: LinkId
    patience: float = 0.0
    fetching: Fetching | None = None


LoadOf = Callable[[LinkId], Load | None]
"""Returns an agent's load, or `None` if the agent must not run the request."""


class RoutingPolicy:
    """A routing policy: `rank` and `choose` decide, and the other methods report events."""

    def __init__(self, longest_wait: float = LONGEST_WAIT) -> None:
        """Make a policy. A request waits for one agent for at most `longest_wait` seconds."""

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
        """Return the best agent for a request with the prefixes `chain`.

        `free` is the agent of lowest rank with a free slot, and requests with the same `cache_key`
        share a prefix. Returns `None` if no agent has a free slot; the request then stays in the
        queue. If `may_wait` is false, the chosen agent has a free slot.
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
        """Record that the agent `link` started the request `id` of `account`.

        The request had waited for the agent `waited_for`, if given. The agent fetches the prefix
        `fetching`, if given.
        """

    def prompt_read(self, id: RequestId, num_tokens: int, num_cached: int) -> None:
        """Record that an agent computed a prompt of `num_tokens`, with `num_cached` cached."""

    def ended(self, id: RequestId, end: Measurement | None) -> bool:
        """Record that a request has left its agent. `end` is `None` if the request failed.

        Returns whether the ranks of agents have changed.
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
        """Record an agent's model, its cache size and the address at which it lends prefixes.

        `most_tokens` is an estimate of the cache size. If `home` is given, the agent still has the
        prefixes that were cached at this home when an agent last left it.
        """

    def agent_left(self, link: LinkId) -> None:
        """Forget an agent that has left."""

    def cache_is(self, link: LinkId, num_tokens: int) -> None:
        """Record that an agent's cache holds at least `num_tokens`."""

    def evicted(self, link: LinkId, keys: Sequence[int] | None) -> None:
        """Record that an agent evicted the prefixes `keys`; `None` means all prefixes."""

    def fetched(self, link: LinkId, done: Fetches) -> None:
        """Record the totals of all prefix fetches that an agent has finished."""

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
