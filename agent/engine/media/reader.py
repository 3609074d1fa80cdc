"""The port that converts media to spans of a prompt."""

from typing import Protocol

from ....shared.inference.request import Sense
from ..prompt import Span


class UnreadableMediaError(ValueError):
    """These bytes cannot be read as media; the message says why, for the client."""


class MediaReader(Protocol):
    """Reads media for one model. Thread-safe."""

    @property
    def identity(self) -> str:
        """The identity of the weights: only engines with equal identities give equal answers."""

    @property
    def num_cached_bytes(self) -> int:
        """The bytes of encoded media cached for later requests."""

    @property
    def senses(self) -> tuple[Sense, ...]:
        """The kinds of media that the reader accepts."""

    def read_image(self, data: bytes) -> tuple[Span, ...]:
        """Return the spans for a picture file: the media, and tokens around them.

        The media are encoded later, when the engine opens the sequence. Raises
        `UnreadableMediaError`.
        """

    def read_audio(self, data: bytes) -> tuple[Span, ...]:
        """Return the spans for a sound file of at most `audio.MOST_SECONDS`; see `read_image`."""
