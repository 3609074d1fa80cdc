"""The sender of a request. The log and the record of the request's end also contain the sender."""

from dataclasses import dataclass, field
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from ...shared.tracing.trace_context import TraceContext
from ..access.identity import NO_LIMITS, CallerLimits

ANONYMOUS_NAME = "anonymous"
"""The name of callers without an access key. No access key may have this name."""

_SCOPE_BYTES = 16

NETWORK_BITS = 64
"""The bits of an IPv6 address that identify the network. A host can choose the other bits."""


class Account(NamedTuple):
    """The holder of limits and of a share of the queue: an access key or a network address.

    An IPv6 network has 64 bits.
    """

    name: str
    address: str | None


STRANGERS = Account(ANONYMOUS_NAME, None)
"""The account of all callers without a key together, if the fleet has keys."""


class Flow(NamedTuple):
    """One connection of a caller without a key."""

    address: str | None
    connection: int


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    - `name`: the name of the key; it has few different values, so it may label metrics.
    - `address`, `user_agent`: only for the log. Behind a proxy, `address` is the proxy's address.
    - `limits`: the limits of the key.
    - `trace_parent`: the span that the client named.
    - `trace`: the span of this request, or the client's span if this balancer traces nothing.
    - `owner`: the owner of everything that the caller creates; without keys, everybody is the
      owner.
    - `connection`: the number of the connection, unique among the open connections of an address.
    """

    name: str = ANONYMOUS_NAME
    address: str | None = None
    user_agent: str | None = None
    limits: CallerLimits = field(default=NO_LIMITS, repr=False)
    trace_parent: TraceContext | None = field(default=None, repr=False)
    trace: TraceContext | None = field(default=None, repr=False)
    owner: str | None = field(default=None, repr=False)
    connection: int | None = field(default=None, repr=False)
    account: Account = field(init=False, repr=False, compare=False)
    """The account whose limits the caller shares: that of its key, or else of its network."""

    def __post_init__(self) -> None:
        network = _network(self.address) if self.is_anonymous else None
        object.__setattr__(self, "account", Account(self.name, network))

    @property
    def is_anonymous(self) -> bool:
        """Whether the caller has no access key."""
        return self.name == ANONYMOUS_NAME

    @property
    def traceparent(self) -> str | None:
        """The `traceparent` header for agents, which adds their work to the trace."""
        return None if self.trace is None else self.trace.traceparent

    @property
    def scope(self) -> str | None:
        """The name that keeps the prompts of different keys apart; `None` without a key."""
        if self.owner is None:
            return None
        return blake2b(self.owner.encode(), digest_size=_SCOPE_BYTES, person=b"scope").hexdigest()

    def holder(self, *, has_keys: bool) -> Account:
        """Return the holder whose share of a pool the caller uses (`shares.py`).

        `has_keys`: the fleet has keys.
        """
        return STRANGERS if has_keys and self.is_anonymous else self.account

    @property
    def flow(self) -> Flow | None:
        """The flow within the account's share of the queue.

        A caller without a key has a flow for each connection.
        """
        if not self.is_anonymous or self.connection is None:
            return None
        return Flow(self.address, self.connection)


def _network(address: str | None) -> str | None:
    """Return the network of an IPv6 address, and other addresses unchanged.

    A host may have a whole IPv6 network.
    """
    if address is None or ":" not in address:
        return address
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(IPv6Address(int(parsed) >> NETWORK_BITS << NETWORK_BITS))
    return address


ANONYMOUS = Caller()
