"""The interface between endpoints and an API: how the API writes its answers."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable

from ....shared.inference import Event, TokenKind
from ..transport.text_frame import TextFrame


class Rendering(ABC):
    """Writes one answer in the form of an API: as a stream, or whole.

    If an answer is made of several requests, each event comes with its request's number.
    """

    @abstractmethod
    def render(self, event: Event, number: int = 0, /) -> bytes:
        """The bytes for `event`, which may be none."""

    def frame_of(self, _kind: TokenKind, /) -> TextFrame | None:
        """The bytes around the text of the next tokens of a kind, if only their text differs."""
        return None

    def tail(self) -> bytes:
        """The last bytes of a stream, once all requests have ended well."""
        return b""

    def stored(self) -> Awaitable[None] | None:
        """A future to wait for before the last bytes are sent: then the answer is stored."""
        return None

    @abstractmethod
    def take(self, event: Event, number: int = 0, /) -> object:
        """Gather `event`, which is no error, for the whole answer."""

    @abstractmethod
    def whole(self) -> object:
        """The whole answer, once all requests have ended, as it is written to JSON."""
