"""What preparation needs of whatever makes spans of a prompt from media."""

from typing import Protocol

from ....shared.inference.request import Sense
from ..prompt import Span


class UnreadableMediaError(ValueError):
    """These bytes cannot be read as media; the text says why, for the client."""


class MediaReader(Protocol):
    """Reads media for one model. Safe from any thread."""

    @property
    def identity(self) -> str:
        """Tells its weights from others': engines answer alike only with the same ones."""

    @property
    def num_cached_bytes(self) -> int:
        """Bytes of encoded media that are cached for later requests."""

    @property
    def senses(self) -> tuple[Sense, ...]:
        """What it reads."""

    def read_image(self, data: bytes) -> tuple[Span, ...]:
        """The spans that stand for a picture file: the media, and tokens around them.

        Not encoded yet: the engine does that when a sequence opens. Raises
        `UnreadableMediaError`.
        """

    def read_audio(self, data: bytes) -> tuple[Span, ...]:
        """The spans that stand for a sound file of at most `audio.MOST_SECONDS`; see above."""
