"""The sender of a request, carried from the API to the log and the record of its end."""

from dataclasses import dataclass, field
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from ...shared.tracing.trace_context import TraceContext
from ..access.identity import NO_LIMITS, CallerLimits

ANONYMOUS_NAME = "anonymous"
"""The name of callers without an access key; no key may have this name."""

_SCOPE_BYTES = 16

NETWORK_BITS = 64
"""The part of an IPv6 address that one host cannot choose."""


class Account(NamedTuple):
    """The holder of limits and turns: a key, or an address (IPv6: a /64 network) without a key."""

    name: str
    address: str | None


STRANGERS = Account(ANONYMOUS_NAME, None)
"""The common holder for all callers without a key, if this fleet has keys."""


class Flow(NamedTuple):
    """One connection of an address without a key."""

    address: str | None
    connection: int


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    `name` may label metrics: it has few different values, and is never taken from a request.

    Without access keys every caller is anonymous. `address` and `user_agent` are only for the log:
    behind a proxy the address is the proxy's, and a client can send any user agent. `limits` are
    the limits of the key. `trace_parent` is the span that the client named. `trace` is the span of
    this request; if this balancer traces nothing, it is the client's span. `owner` owns the things
    that the caller creates; without keys, everybody owns them. `connection` is a number that
    differs for each open connection of an address.
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
    """The account whose limits and turns the caller shares: the account of its key.

    Without a key, it is the account of its network.
    """

    def __post_init__(self) -> None:
        network = _network(self.address) if self.is_anonymous else None
        object.__setattr__(self, "account", Account(self.name, network))

    @property
    def is_anonymous(self) -> bool:
        """Whether the caller has no access key."""
        return self.name == ANONYMOUS_NAME

    @property
    def traceparent(self) -> str | None:
        """The `traceparent` for agents, which makes their work a part of the trace."""
        return None if self.trace is None else self.trace.traceparent

    @property
    def scope(self) -> str | None:
        """The name by which agents separate the prompts of keys; `None` without a key."""
        if self.owner is None:
            return None
        return blake2b(self.owner.encode(), digest_size=_SCOPE_BYTES, person=b"scope").hexdigest()

    def holder(self, *, has_keys: bool) -> Account:
        """Return the holder whose share of a pool the caller uses. `has_keys`: the fleet has keys.

        See `shares.py`.
        """
        return STRANGERS if has_keys and self.is_anonymous else self.account

    @property
    def flow(self) -> Flow | None:
        """The flow within the account's share of the queue.

        If the caller has no key, the flow is its connection.
        """
        if not self.is_anonymous or self.connection is None:
            return None
        return Flow(self.address, self.connection)


def _network(address: str | None) -> str | None:
    """Return the network of an IPv6 address; return any other address unchanged.

    One host may have a whole IPv6 network.
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
