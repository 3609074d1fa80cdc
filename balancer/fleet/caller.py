"""Who sent a request: carried from the API to the log and the record of its end."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """`name` may label metrics: it comes from a bounded set, never from a request.

    Without access keys every caller is anonymous. `address` and `user_agent` are for the log only:
    the address is the proxy's where there is one, and a client may write anything as its agent.
    """

    name: str = "anonymous"
    address: str | None = None
    user_agent: str | None = None


ANONYMOUS = Caller()
