"""What an agent proves with, to each balancer, that it is the one that was there before.

A balancer gives a secret when it lets the agent in, and knows it again until the balancer ends. All
processes of the agent share what they were given, since each may be the next to dial.

Invariant: at most `MAX_BALANCERS` secrets are kept, those that were given last.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator

MAX_BALANCERS = 256
"""A balancer has a new name whenever it starts."""


def _nothing(balancer: str, secret: str) -> None:
    """No other process needs to know."""


class BalancerSecrets:
    """By the names that balancers draw at their start. `on_new` is called with what was given."""

    def __init__(self, on_new: Callable[[str, str], None] = _nothing) -> None:
        self._on_new = on_new
        self._secrets: OrderedDict[str, str] = OrderedDict()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """The names of balancers and what they gave."""
        return iter(list(self._secrets.items()))

    def of(self, balancer: str | None) -> str | None:
        """What the balancer of that name gave; it is shown to no other."""
        return None if balancer is None else self._secrets.get(balancer)

    def given(self, balancer: str, secret: str) -> None:
        """A balancer let this process in."""
        if self.learn(balancer, secret):
            self._on_new(balancer, secret)

    def learn(self, balancer: str, secret: str) -> bool:
        """A balancer let a process of this agent in; whether that is new."""
        is_new = self._secrets.get(balancer) != secret
        self._secrets[balancer] = secret
        self._secrets.move_to_end(balancer)
        if len(self._secrets) > MAX_BALANCERS:
            self._secrets.popitem(last=False)
        return is_new
