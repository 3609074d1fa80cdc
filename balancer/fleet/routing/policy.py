"""A routing policy: which agent gets a request. `policies/` has one file for each.

Knows neither time nor queues: dispatch asks, and tells what became of requests.
"""

from collections.abc import Callable, Sequence

from ....shared.inference import RequestId
from ....shared.inference.prefix_chain import PrefixChain
from ....shared.inference.prefix_peers import Peer
from ....shared.reports.statistics import Fetches
from ..caller import ANONYMOUS, Account
from ..decisions import LinkId
from ..view import RoutingView
from .choice import Choice, Load
from .fetches import Fetching
from .prefix_index import Home
from .rates import Measurement

LONGEST_WAIT = 30.0
"""Seconds for which a request waits for one agent at most."""

LoadOf = Callable[[LinkId], Load | None]
"""An agent's load; `None`: it may not have the request."""


class RoutingPolicy:
    """A policy decides with `rank` and `choose`; it may learn from all other methods."""

    def __init__(self, longest_wait: float = LONGEST_WAIT) -> None:
        """A request may wait `longest_wait` seconds for one agent alone."""

    def rank(self, link: LinkId, load: Load) -> float:
        """Lower is better, for a request of which nothing is known. Equals get requests in turn."""
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
        """Statistics of the choices so far."""
        return RoutingView()

    def seconds_to_first_token(self, link: LinkId) -> float | None:
        """Seconds until an agent has computed its present prompts, if known."""
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
        """An agent was given a request of `account`, which may have waited for one agent alone.

        It may be `fetching` a part of the prompt.
        """

    def prompt_read(self, id: RequestId, num_tokens: int, num_cached: int) -> None:
        """An agent has computed a request's prompt, of which it had so many tokens."""

    def ended(self, id: RequestId, end: Measurement | None) -> bool:
        """A request has left its agent; well, if there is an `end`. True: ranks have changed."""
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
        """Take an agent's model, an estimate of its cache, and the address at which it lends.

        It still has what its `home` had cached when it left.
        """

    def agent_left(self, link: LinkId) -> None:
        """An agent has left."""

    def cache_is(self, link: LinkId, num_tokens: int) -> None:
        """An agent's cache holds that much, or more."""

    def evicted(self, link: LinkId, keys: Sequence[int] | None) -> None:
        """An agent does not hold the prefixes `keys` any more; `None`: nor any other."""

    def fetched(self, link: LinkId, done: Fetches) -> None:
        """Take the outcome of all fetches of an agent so far."""

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
