"""The interface through which an API writes its answers."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable

from ....shared.inference import Event, TokenKind
from ..transport.text_frame import TextFrame


class Rendering(ABC):
    """Writes one answer in the format of an API, as a stream or whole.

    If several requests make the answer, each event comes with the number of its request.
    """

    @abstractmethod
    def render(self, event: Event, number: int = 0, /) -> bytes:
        """Return the bytes for `event`; may be empty."""

    def frame_of(self, _kind: TokenKind, /) -> TextFrame | None:
        """Return the bytes around the text of the next tokens of a kind; `None` if they differ."""
        return None

    def tail(self) -> bytes:
        """Return the last bytes of a stream, once all requests have ended well."""
        return b""

    def stored(self) -> Awaitable[None] | None:
        """Return a future that is done when the answer is stored. Wait for it before the last
        bytes.
        """
        return None

    @abstractmethod
    def take(self, event: Event, number: int = 0, /) -> object:
        """Collect `event`, which is not an error, for the whole answer."""

    @abstractmethod
    def whole(self) -> object:
        """Return the whole answer for JSON, once all requests have ended."""
