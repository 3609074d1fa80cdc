"""Streams one answer: tokens in, text out, until a stop string ends it.

Invariants: over the whole answer every accepted token is in exactly one `Gain`; the texts joined
are the answer without the stop string. Tokens after the stop string are not accepted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .detokenizer import Detokenizer
from .stop_strings import StopStrings


@dataclass(frozen=True, slots=True)
class Gain:
    """What an answer gained: text that can be sent, and the tokens that were accepted.

    `ends` has, for each token, the position in the answer where its text ends.
    """

    text: str = ""
    tokens: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


class Transcript:
    """The answer to one request."""

    def __init__(self, piece: Callable[[int], bytes], stops: Sequence[str]) -> None:
        """`piece` gives a token's bytes."""
        self._detokenizer = Detokenizer(piece)
        self._stop_strings = StopStrings(stops)
        self._num_characters = 0
        self.num_tokens = 0

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string ended the answer."""
        return self.stop_string is not None

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the answer."""
        return self._stop_strings.found

    def push(self, tokens: Sequence[int]) -> Gain:
        """Accept tokens up to the one that completes a stop string."""
        texts: list[str] = []
        ends: list[int] = []
        for token in tokens:
            if self.is_stopped:
                break
            text = self._detokenizer.push((token,))
            self._num_characters += len(text)
            ends.append(self._num_characters)
            texts.append(self._stop_strings.push(text))
        self.num_tokens += len(texts)
        return Gain("".join(texts), tuple(tokens[: len(texts)]), tuple(ends))

    def flush(self) -> Gain:
        """The text that was held back; the answer is over."""
        text = self._stop_strings.push(self._detokenizer.flush())
        return Gain(text + self._stop_strings.flush())
