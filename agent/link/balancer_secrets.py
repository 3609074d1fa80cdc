"""The secrets by which balancers recognise this agent when it reconnects.

A balancer gives a secret when it accepts the agent, and recognises the secret until the balancer
ends. All processes of the agent share the secrets, since any of them may dial next.

Invariant: at most the `MAX_BALANCERS` latest secrets are kept.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator

MAX_BALANCERS = 256
"""Maximum secrets kept. A balancer has a new name whenever it starts."""


def _nothing(balancer: str, secret: str) -> None:
    """Do nothing: there is no other process to tell."""


class BalancerSecrets:
    """Secrets by balancer name. A balancer draws a new name at each start.

    `on_new` is called with each new name and secret.
    """

    def __init__(self, on_new: Callable[[str, str], None] = _nothing) -> None:
        self._on_new = on_new
        self._secrets: OrderedDict[str, str] = OrderedDict()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield balancer names and secrets."""
        return iter(list(self._secrets.items()))

    def of(self, balancer: str | None) -> str | None:
        """Return the secret that `balancer` gave, or `None`. Show it to no other balancer."""
        return None if balancer is None else self._secrets.get(balancer)

    def given(self, balancer: str, secret: str) -> None:
        """Record the secret that `balancer` gave when it accepted this process."""
        if self.learn(balancer, secret):
            self._on_new(balancer, secret)

    def learn(self, balancer: str, secret: str) -> bool:
        """Record a secret given to any process of this agent; return whether it is new."""
        is_new = self._secrets.get(balancer) != secret
        self._secrets[balancer] = secret
        self._secrets.move_to_end(balancer)
        if len(self._secrets) > MAX_BALANCERS:
            self._secrets.popitem(last=False)
        return is_new
