"""The policy `two-choices`: draw two agents, and choose the less loaded one.

Balancers that share agents know only their own latest requests. With the policy `load` all of them
would send their next requests to the same agent. Two draws spread requests nearly as well as a
comparison of all agents: M. Mitzenmacher, "The power of two choices in randomized load balancing"
(2001).
"""

from hashlib import blake2b

from .....shared.inference.prefix_chain import PrefixChain
from .....shared.inference.prefix_peers import Peer
from ...decisions import LinkId
from ..policy import LONGEST_WAIT, Choice, Load, LoadOf, RoutingPolicy
from ..prefix_index import Home


class TwoChoices(RoutingPolicy):
    """The policy `two-choices`. A draw is the hash of its number, so that tests can repeat it.

    Invariant: an agent that serves a model is listed once, under this model.
    """

    def __init__(self, longest_wait: float = LONGEST_WAIT) -> None:
        self._models: dict[LinkId, str] = {}
        self._agents: dict[str, list[LinkId]] = {}
        self._num_drawn = 0

    def rank(self, link: LinkId, load: Load) -> float:
        return load.share

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
        """Return the better of two agents that serve the same requests as `free`.

        Returns `free` if both agents are full.
        """
        if free is None:
            return None
        loads = {link: load_of(link) for link in self._draw(self._agents[self._models[free]])}
        shares = {link: load.share for link, load in loads.items() if load and load.has_free_slot}
        return Choice(min(shares, key=shares.__getitem__, default=free))

    def _draw(self, links: list[LinkId]) -> list[LinkId]:
        """Return two of `links`, or one if `links` has only one."""
        if len(links) == 1:
            return links
        self._num_drawn += 1
        digest = blake2b(b"%d" % self._num_drawn, digest_size=8).digest()
        more, first = divmod(int.from_bytes(digest, "big"), len(links))
        second = (first + 1 + more % (len(links) - 1)) % len(links)
        return [links[first], links[second]]

    def agent_is(
        self,
        link: LinkId,
        model: str | None,
        most_tokens: float,
        peer: Peer | None = None,
        home: Home | None = None,
    ) -> None:
        if self._models.get(link) == model:
            return
        self.agent_left(link)
        if model is not None:
            self._models[link] = model
            self._agents.setdefault(model, []).append(link)

    def agent_left(self, link: LinkId) -> None:
        model = self._models.pop(link, None)
        if model is None:
            return
        self._agents[model].remove(link)
        if not self._agents[model]:
            del self._agents[model]

    def check_integrity(self) -> None:
        listed = [(link, model) for model, links in self._agents.items() for link in links]
        if len(listed) != len(self._models) or dict(listed) != self._models:
            raise RuntimeError("agents and models disagree")
