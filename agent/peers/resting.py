"""Peers that failed are left alone for a while: longer each time, until one fetch has worked.

Invariant: at most `MAX_PEERS` are remembered, those that failed last.
"""

from collections import OrderedDict
from dataclasses import dataclass

FIRST_REST = 5.0
"""Seconds."""

LONGEST_REST = 300.0

MAX_PEERS = 1024


@dataclass(frozen=True, slots=True)
class _Rest:
    until: float
    seconds: float


class Resting:
    """Peers by address. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._rests: OrderedDict[str, _Rest] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rests)

    def may_ask(self, address: str, now: float) -> bool:
        """Whether a peer is not left alone now."""
        rest = self._rests.get(address)
        return rest is None or now >= rest.until

    def failed(self, address: str, now: float) -> None:
        """A fetch from there came to nothing."""
        before = self._rests.pop(address, None)
        seconds = FIRST_REST if before is None else min(2 * before.seconds, LONGEST_REST)
        self._rests[address] = _Rest(now + seconds, seconds)
        if len(self._rests) > MAX_PEERS:
            self._rests.popitem(last=False)

    def worked(self, address: str) -> None:
        """A fetch from there went well."""
        self._rests.pop(address, None)
