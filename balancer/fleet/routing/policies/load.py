"""The policy `load`: choose the agent with the smallest share of taken slots."""

from .....shared.inference.prefix_chain import PrefixChain
from ...decisions import LinkId
from ..policy import Choice, Load, LoadOf, RoutingPolicy


class LeastLoad(RoutingPolicy):
    """The policy `load`. It ignores cached prefixes and speeds."""

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
        return None if free is None else Choice(free)
