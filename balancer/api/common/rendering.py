"""What an API gives the frame of its endpoints: how its answer is written."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable

from ....shared.inference import Event, TokenKind
from ..transport.text_frame import TextFrame


class Rendering(ABC):
    """How an API writes one answer: as a stream, or whole.

    Where an answer is made of several requests, events come with the number of theirs.
    """

    @abstractmethod
    def render(self, event: Event, number: int = 0, /) -> bytes:
        """The bytes for `event`, which may be none."""

    def frame_of(self, _kind: TokenKind, /) -> TextFrame | None:
        """What is around the text of the next tokens of a kind, if they differ in no more."""
        return None

    def tail(self) -> bytes:
        """The last bytes of a stream, once all requests have ended well."""
        return b""

    def stored(self) -> Awaitable[None] | None:
        """What to wait for before the last bytes are sent: the answer is stored then."""
        return None

    @abstractmethod
    def take(self, event: Event, number: int = 0, /) -> object:
        """Gather `event`, which is no error, for the whole answer."""

    @abstractmethod
    def whole(self) -> object:
        """The whole answer, once all requests have ended, as it is written to JSON."""
