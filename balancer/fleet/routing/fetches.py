"""Fetches of prefixes between agents: which agent can lend, how long a fetch takes, and tickets.

The rate of an agent is learnt from its own fetches. Each time a rate is too slow for a fetch, its
record fades a little, so that fetching is tried again.
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
"""Bytes a second, before anything was measured: a gigabit, half used."""

PRIOR = 0.1
"""Seconds of a fetch that the first rate weighs."""

FORGIVEN = 1.02
"""A slow rate counts as so many times faster after each request that it kept from fetching."""

MOST_BYTES = 2**53

LEAST_RATE = 1e3
MOST_RATE = 1e12
"""No connection counts as slower or faster."""

LATENCY = 0.05
"""Seconds that a fetch takes besides: to connect, and for both engines to copy."""

LEAST_TOKENS = 64
"""Shorter prefixes are computed."""

SLACK = 2.0
"""A fetch is given up when it takes as many times longer than to compute the prefix would."""

LEAST_SECONDS = 0.25
"""A fetch has so much time at least."""


class Fetching(NamedTuple):
    """A request should fetch `num_tokens` from the agent `source`; computing them would take
    `seconds`.

    `address` is where the source lends.
    """

    source: LinkId
    num_tokens: float
    seconds: float
    address: str

    def agree(self, ticket: str) -> tuple[Lend, PrefixSource]:
        """Return the messages to lender and borrower, with `ticket`."""
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
    """The agents that lend prefixes, by link. Lengths are in tokens."""

    def __init__(self) -> None:
        self._peers: dict[LinkId, Peer] = {}
        self._rates: dict[LinkId, _Rate] = {}

    def agent_is(self, link: LinkId, peer: Peer | None) -> None:
        """Record what an agent reports about itself as a lender."""
        if peer is None:
            self.agent_left(link)
        else:
            self._peers[link] = peer

    def agent_left(self, link: LinkId) -> None:
        """Forget an agent that left or no longer lends."""
        self._peers.pop(link, None)
        self._rates.pop(link, None)

    def measured(self, link: LinkId, done: Done) -> None:
        """Record the totals of an agent's fetches so far."""
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
        """Return the prefix that an agent should fetch instead of computing it, if any.

        Other agents hold `held` tokens of the prompt; the agent itself holds `own`, and computes
        `prefill` tokens a second.
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
    """Draws tickets with a `secret` that nobody else knows; without a secret there are no
    tickets."""

    def __init__(self, secret: bytes = b"") -> None:
        self._secret = secret
        self._num_drawn = 0

    @property
    def are_there(self) -> bool:
        """Whether tickets can be drawn."""
        return bool(self._secret)

    def draw(self, id: RequestId) -> str:
        """Return a ticket that nobody can guess.

        Each call gives another, also for the same request.
        """
        self._num_drawn += 1
        data = b"%d " % self._num_drawn + id.encode("utf-8", "surrogatepass")
        return blake2b(data, digest_size=16, key=self._secret).hexdigest()
