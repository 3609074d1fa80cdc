"""How the frame queue treats the balancer's messages to an agent."""

from collections.abc import Sequence

from ....shared.framing.frames import Topic
from ....shared.messages import (
    Ask,
    Cancel,
    FromBalancer,
    Start,
    Withdraw,
    encode_from_balancer,
)


class BalancerCodec:
    """The `Codec` of messages to an agent, each of which is about one request at most."""

    def encode(self, message: FromBalancer) -> bytes:
        return encode_from_balancer(message)

    def topics(self, message: FromBalancer) -> Sequence[Topic]:
        return (message.id,) if isinstance(message, Start | Cancel | Ask | Withdraw) else ()

    def halves(self, message: FromBalancer) -> tuple[FromBalancer, FromBalancer]:
        raise TypeError(f"`{message.type}` is about one request at most")

    def merged(self, message: FromBalancer, follower: FromBalancer) -> None:
        return None

    def cuts_short(self, message: FromBalancer) -> bool:
        """A request or query that is cancelled before it was sent need not be sent."""
        return isinstance(message, Cancel | Withdraw)

    def in_place_of(self, message: FromBalancer) -> FromBalancer | None:
        """A cancelled request needs an answer, though the agent never saw it; a query does not."""
        return Cancel(id=message.id, is_unsent=True) if isinstance(message, Cancel) else None

    def unsendable(self, message: FromBalancer, reason: str) -> FromBalancer | None:
        """Raises `ValueError`: requests that agents could not read are not accepted."""
        raise ValueError(f"`{message.type}` cannot be sent: {reason}")
