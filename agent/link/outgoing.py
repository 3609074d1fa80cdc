"""The frame queue's codec for the agent's messages."""

from collections.abc import Callable, Sequence

from ...shared.errors import EngineFailed, to_wire
from ...shared.framing.frames import Topic
from ...shared.inference import RequestId
from ...shared.messages import FromAgent, Output, Refused, Reply, encode_from_agent
from ...shared.queries import Declined

MOST_MERGED = 256
"""Items in one message that was put together while it waited: bounds what merging costs."""


class AgentCodec:
    """The `Codec` of messages to a balancer. An `Output` may be about several requests.

    `on_unsendable` is called for each request whose items cannot be sent, while the exception is
    handled.
    """

    def __init__(self, on_unsendable: Callable[[RequestId], None]) -> None:
        self._on_unsendable = on_unsendable

    def encode(self, message: FromAgent) -> bytes:
        return encode_from_agent(message)

    def topics(self, message: FromAgent) -> Sequence[Topic]:
        if isinstance(message, Output):
            return tuple(dict.fromkeys(item.id for item in message.items))
        return (message.id,) if isinstance(message, Reply) else ()

    def halves(self, message: FromAgent) -> tuple[FromAgent, FromAgent]:
        if not isinstance(message, Output):
            raise TypeError(f"`{message.type}` is about one request at most")
        topics = self.topics(message)
        first = {*topics[: len(topics) // 2]}
        return (
            Output(items=tuple(item for item in message.items if item.id in first)),
            Output(items=tuple(item for item in message.items if item.id not in first)),
        )

    def merged(self, message: FromAgent, follower: FromAgent) -> FromAgent | None:
        """Steps of one request, so that a long wait is not a long queue."""
        if not isinstance(message, Output) or not isinstance(follower, Output):
            return None
        if len(message.items) + len(follower.items) > MOST_MERGED:
            return None
        return Output(items=(*message.items, *follower.items))

    def cuts_short(self, message: FromAgent) -> bool:
        return False

    def in_place_of(self, message: FromAgent) -> None:
        return None

    def unsendable(self, message: FromAgent, reason: str) -> FromAgent | None:
        """The request or query ends with an error; its balancer and its neighbours go on."""
        error = EngineFailed(f"the agent cannot send the answer: {reason}")
        if isinstance(message, Output):
            self._on_unsendable(message.items[0].id)
            return Output(items=(Refused(id=message.items[0].id, error=to_wire(error)),))
        if isinstance(message, Reply):
            self._on_unsendable(message.id)
            return Reply(id=message.id, result=Declined(error=to_wire(error)))
        raise ValueError(f"`{message.type}` cannot be sent: {reason}")
