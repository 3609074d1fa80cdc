"""Decides which agent fetches a prompt prefix from which other agent.

The transfer rate of an agent is learnt from its own fetches. If a learnt rate is too slow for a
fetch, the learnt value is raised a little, so that the agent tries a fetch again later.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from ....shared.inference import RequestId, within
from ....shared.inference.prefix_peers import LONGEST_LOAN, Peer, PrefixSource
from ....shared.messages import Lend
from ....shared.reports.statistics import Fetches as Done
from ..decisions import LinkId
from .rates import Average

FIRST_RATE = 50e6
"""The assumed transfer rate in bytes a second before any fetch: half of a gigabit connection."""

PRIOR = 0.1
"""The weight of `FIRST_RATE` in the average, in seconds of measured fetches."""

FORGIVEN = 1.02
"""The factor by which a slow learnt rate is raised each time the rate rules out a fetch."""

MOST_BYTES = 2**53

LEAST_RATE = 1e3
MOST_RATE = 1e12
"""The bounds of a learnt transfer rate, in bytes a second."""

LATENCY = 0.05
"""Seconds that every fetch takes, whatever its size: to connect, and to copy in both engines."""

LEAST_TOKENS = 64
"""The minimum tokens that a fetch must save. An agent computes shorter prefixes itself."""

SLACK = 2.0
"""A fetch is stopped if it takes this many times longer than computing the prefix."""

LEAST_SECONDS = 0.25
"""The minimum time limit of a fetch, in seconds."""


class Fetching(NamedTuple):
    """A recommended fetch of `num_tokens` from the agent `source`.

    Computing these tokens would take `seconds`. The source lends prefixes at `address`.
    """

    source: LinkId
    num_tokens: float
    seconds: float
    address: str

    def agree(self, ticket: str) -> tuple[Lend, PrefixSource]:
        """Return the messages to the lender and to the borrower; both contain `ticket`."""
        seconds = min(max(self.seconds * SLACK, LEAST_SECONDS), LONGEST_LOAN)
        return (
            Lend(ticket=ticket, seconds=seconds),
            PrefixSource(address=self.address, ticket=ticket, seconds=seconds),
        )


@dataclass(slots=True)
class _Rate:
    average: Average
    done: Done


class Fetches:
    """The agents that lend prefixes, and the transfer rate of each agent."""

    def __init__(self) -> None:
        self._peers: dict[LinkId, Peer] = {}
        self._rates: dict[LinkId, _Rate] = {}

    def agent_is(self, link: LinkId, peer: Peer | None) -> None:
        """Record how an agent lends prefixes; `peer` is `None` if the agent lends none."""
        if peer is None:
            self.agent_left(link)
        else:
            self._peers[link] = peer

    def agent_left(self, link: LinkId) -> None:
        """Forget an agent that left or no longer lends."""
        self._peers.pop(link, None)
        self._rates.pop(link, None)

    def measured(self, link: LinkId, done: Done) -> None:
        """Record the totals of all fetches that an agent has finished."""
        if link not in self._peers:
            return
        rate = self._rate(link)
        num_bytes = min(done.bytes - rate.done.bytes, MOST_BYTES)
        seconds = done.seconds - rate.done.seconds
        if num_bytes > 0 and seconds > 0:
            rate.average.add(num_bytes, max(seconds, num_bytes / MOST_RATE))
        rate.done = done

    def seconds(self, link: LinkId, num_tokens: float) -> float:
        """Return the seconds that an agent needs to fetch `num_tokens`."""
        rate = within(self._rate(link).average.value(FIRST_RATE), LEAST_RATE, MOST_RATE)
        peer = self._peers[link]
        return LATENCY + (num_tokens * peer.cell_bytes + peer.state_bytes) / rate

    def best(
        self, link: LinkId, held: Mapping[LinkId, float], own: float, prefill: float
    ) -> Fetching | None:
        """Return the prefix that an agent should fetch, or `None` if computing it is faster.

        Each agent in `held` has that many tokens of the prompt cached. The agent `link` has `own`
        tokens cached, and computes `prefill` tokens a second.
        """
        peer = self._peers.get(link)
        if peer is None:
            return None
        source = max(
            (one for one in held if one != link and self._can_lend(one, peer)),
            key=lambda one: held[one],
            default=None,
        )
        if source is None or held[source] - own < LEAST_TOKENS:
            return None
        # All of the prefix is fetched, also what the agent has itself.
        computing = (held[source] - own) / prefill
        if self.seconds(link, held[source]) < computing:
            return Fetching(source, held[source], computing, self._peers[source].address)
        self._forget_a_little(link)
        return None

    def is_peer(self, link: LinkId) -> bool:
        """Return whether an agent lends prefixes."""
        return link in self._peers

    def _can_lend(self, link: LinkId, peer: Peer) -> bool:
        other = self._peers.get(link)
        return other is not None and peer.can_use(other)

    def _rate(self, link: LinkId) -> _Rate:
        rate = self._rates.get(link)
        if rate is None:
            rate = self._rates[link] = _Rate(Average(FIRST_RATE * PRIOR, PRIOR), Done())
        return rate

    def _forget_a_little(self, link: LinkId) -> None:
        average = self._rate(link).average
        if average.value(FIRST_RATE) < FIRST_RATE:
            average.amount *= FORGIVEN


class Tickets:
    """Draws the tickets that allow a fetch, from a `secret` that only this balancer knows.

    Without a secret no tickets can be drawn.
    """

    def __init__(self, secret: bytes = b"") -> None:
        self._secret = secret
        self._num_drawn = 0

    @property
    def are_there(self) -> bool:
        """Whether tickets can be drawn."""
        return bool(self._secret)

    def draw(self, id: RequestId) -> str:
        """Return a new ticket for the request `id`; nobody can guess the ticket.

        Every call returns a different ticket.
        """
        self._num_drawn += 1
        data = b"%d " % self._num_drawn + id.encode("utf-8", "surrogatepass")
        return blake2b(data, digest_size=16, key=self._secret).hexdigest()
