"""The codec of an agent's messages to a balancer; turns a step's items into messages."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from ...shared.errors import EngineFailed, to_wire
from ...shared.framing.frames import Topic
from ...shared.inference import MAX_TOKEN_IDS, RequestId
from ...shared.messages import FromAgent, Item, Output, Piece, Refused, Reply, encode_from_agent
from ...shared.queries import Declined, Tokenized

MOST_MERGED = 256
"""Maximum items in a message merged while it waited: bounds the cost of merging."""

MOST_EXPLAINED = 256
"""Maximum tokens with log-probabilities in one message.

Each token may have 21 entries with their texts, and a balancer decodes a whole message at once:
256 tokens already take some milliseconds.
"""


def outputs(items: Iterable[Item]) -> Iterator[Output]:
    """Yield the messages for one step; several only if there are very many log-probabilities."""
    part: list[Item] = []
    num_explained = 0
    for item in items:
        for each in _cut(item):
            num_more = _num_explained(each)
            if num_explained + num_more > MOST_EXPLAINED:
                yield Output(items=tuple(part))
                part, num_explained = [], 0
            part.append(each)
            num_explained += num_more
    yield Output(items=tuple(part))


def _num_explained(item: Item) -> int:
    return len(item.log_probs) if isinstance(item, Piece) and item.log_probs else 0


def _cut(item: Item) -> Iterator[Item]:
    """Split a piece with too many log-probabilities; only the first part has the text."""
    if not isinstance(item, Piece) or not item.log_probs or len(item.log_probs) <= MOST_EXPLAINED:
        yield item
        return
    yield replace(item, log_probs=item.log_probs[:MOST_EXPLAINED])
    for start in range(MOST_EXPLAINED, len(item.log_probs), MOST_EXPLAINED):
        more = item.log_probs[start : start + MOST_EXPLAINED]
        yield Piece(id=item.id, text="", kind=item.kind, log_probs=more)


class AgentCodec:
    """The `Codec` of messages to a balancer. An `Output` may be about several requests.

    `on_unsendable` is called for each request whose items cannot be sent, while the exception is
    handled.
    """

    def __init__(self, on_unsendable: Callable[[RequestId], None]) -> None:
        self._on_unsendable = on_unsendable

    def encode(self, message: FromAgent) -> bytes:
        """Encode `message`. Raises `ValueError` if every balancer would refuse it."""
        match message:
            case Reply(result=Tokenized(tokens=tokens)) if len(tokens) > MAX_TOKEN_IDS:
                raise ValueError(f"the text has more than {MAX_TOKEN_IDS} tokens")
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
        """Merge consecutive outputs, so that a long wait does not fill the queue."""
        if not isinstance(message, Output) or not isinstance(follower, Output):
            return None
        items = (*message.items, *follower.items)
        if len(items) > MOST_MERGED or sum(map(_num_explained, items)) > MOST_EXPLAINED:
            return None
        return Output(items=items)

    def cuts_short(self, message: FromAgent) -> bool:
        return False

    def in_place_of(self, message: FromAgent) -> None:
        return None

    def unsendable(self, message: FromAgent, reason: str) -> FromAgent | None:
        """Return an error that ends the request or query of `message`. Other requests continue."""
        error = EngineFailed(f"the agent cannot send the answer: {reason}")
        if isinstance(message, Output):
            self._on_unsendable(message.items[0].id)
            return Output(items=(Refused(id=message.items[0].id, error=to_wire(error)),))
        if isinstance(message, Reply):
            self._on_unsendable(message.id)
            return Reply(id=message.id, result=Declined(error=to_wire(error)))
        raise ValueError(f"`{message.type}` cannot be sent: {reason}")
