"""Fetches of prefixes between agents: who can lend, how long it takes, and tickets.

An agent's rate is learnt from its own fetches. A rate that is too slow counts as a little faster
each time, so that fetching is tried again.
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
    """A request is to fetch `num_tokens` from `source`; to compute them would take `seconds`.

    `address` is where the source lends.
    """

    source: LinkId
    num_tokens: float
    seconds: float
    address: str

    def agree(self, ticket: str) -> tuple[Lend, PrefixSource]:
        """The messages to both sides of a `ticket`."""
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
    """Agents by link. Lengths are in tokens."""

    def __init__(self) -> None:
        self._peers: dict[LinkId, Peer] = {}
        self._rates: dict[LinkId, _Rate] = {}

    def agent_is(self, link: LinkId, peer: Peer | None) -> None:
        """Take what an agent reports of itself as a peer."""
        if peer is None:
            self.agent_left(link)
        else:
            self._peers[link] = peer

    def agent_left(self, link: LinkId) -> None:
        """Forget an agent that is gone, or no longer a peer."""
        self._peers.pop(link, None)
        self._rates.pop(link, None)

    def measured(self, link: LinkId, done: Done) -> None:
        """Take the outcome of all fetches of an agent so far."""
        if link not in self._peers:
            return
        rate = self._rate(link)
        num_bytes = min(done.bytes - rate.done.bytes, MOST_BYTES)
        seconds = done.seconds - rate.done.seconds
        if num_bytes > 0 and seconds > 0:
            rate.average.add(num_bytes, max(seconds, num_bytes / MOST_RATE))
        rate.done = done

    def seconds(self, link: LinkId, num_tokens: float) -> float:
        """Seconds for an agent to fetch so many tokens."""
        rate = within(self._rate(link).average.value(FIRST_RATE), LEAST_RATE, MOST_RATE)
        peer = self._peers[link]
        return LATENCY + (num_tokens * peer.cell_bytes + peer.state_bytes) / rate

    def best(
        self, link: LinkId, held: Mapping[LinkId, float], own: float, prefill: float
    ) -> Fetching | None:
        """The prefix that an agent with `own` tokens had better fetch than compute, if any.

        Others hold `held` tokens; it computes `prefill` of them a second.
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
        """Whether an agent lends prefixes."""
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
    """Draws tickets by a `secret` that no one else knows; without one there are none."""

    def __init__(self, secret: bytes = b"") -> None:
        self._secret = secret
        self._num_drawn = 0

    @property
    def are_there(self) -> bool:
        """Whether there is anything to draw."""
        return bool(self._secret)

    def draw(self, id: RequestId) -> str:
        """A ticket that no one can guess, for a request that may be started several times."""
        self._num_drawn += 1
        data = b"%d " % self._num_drawn + id.encode("utf-8", "surrogatepass")
        return blake2b(data, digest_size=16, key=self._secret).hexdigest()
