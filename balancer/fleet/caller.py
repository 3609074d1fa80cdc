"""Who sent a request: carried from the API to the log and the record of its end."""

from dataclasses import dataclass, field
from typing import NamedTuple

from ...shared.tracing.trace_context import TraceContext
from ..access.identity import NO_LIMITS, CallerLimits

ANONYMOUS_NAME = "anonymous"
"""Whoever has no access key; no key may be called so."""


class Account(NamedTuple):
    """Who shares a set of limits: a key, or an address without one."""

    name: str
    address: str | None


@dataclass(frozen=True, slots=True)
class Caller:
    """`name` may label metrics: it comes from a bounded set, never from a request.

    Without access keys every caller is anonymous. `address` and `user_agent` are for the log only:
    the address is the proxy's where there is one, and a client may write anything as its agent.
    `limits` are those of its key. `trace_parent` is the span that the client named, `trace` the one
    of this request, or again the client's where nothing is traced here. What the caller made
    belongs to `owner`; without keys, to everybody. `connection` is a number that no other open
    connection of its address has.
    """

    name: str = ANONYMOUS_NAME
    address: str | None = None
    user_agent: str | None = None
    limits: CallerLimits = field(default=NO_LIMITS, repr=False)
    trace_parent: TraceContext | None = field(default=None, repr=False)
    trace: TraceContext | None = field(default=None, repr=False)
    owner: str | None = field(default=None, repr=False)
    connection: int | None = field(default=None, repr=False)

    @property
    def is_anonymous(self) -> bool:
        """Whether it has no access key."""
        return self.name == ANONYMOUS_NAME

    @property
    def traceparent(self) -> str | None:
        """What is passed on with the request, so that its work is a part of its trace."""
        return None if self.trace is None else self.trace.traceparent

    @property
    def account(self) -> Account:
        """Whose limits it shares: those of its key; without one, of its address."""
        return Account(self.name, self.address if self.is_anonymous else None)

    @property
    def flow(self) -> int | None:
        """Who shares what its account gets in the queue: its connections, where it has no key."""
        return self.connection if self.is_anonymous else None


ANONYMOUS = Caller()
