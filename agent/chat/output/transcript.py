"""Streams one answer: tokens in, text out, until a stop string or a stop token ends the answer.

Invariants: every accepted token is in exactly one `Gain`; the texts joined are the answer, without
the stop string unless it is included. Tokens after the stop string are not accepted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .detokenizer import Detokenizer
from .stop_strings import StopStrings


@dataclass(frozen=True, slots=True)
class Gain:
    """A piece of an answer: text that can be sent, and the tokens that were accepted.

    `ends` has, for each token, the position in the answer where its text ends.
    """

    text: str = ""
    tokens: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stops:
    """The strings and tokens that end an answer, in addition to the model's end tokens.

    Unless `are_included`, the one that ends the answer is not part of it. The answer does not end
    before `min_tokens` tokens.
    """

    strings: tuple[str, ...] = ()
    tokens: frozenset[int] = frozenset()
    min_tokens: int = 0
    are_included: bool = False


class Transcript:
    """The streamed answer to one request."""

    def __init__(self, piece: Callable[[int], bytes], stops: Stops) -> None:
        """`piece` returns a token's bytes."""
        self._detokenizer = Detokenizer(piece)
        self._stops = stops
        self._stop_strings = StopStrings(stops.strings, are_included=stops.are_included)
        self._can_stop = bool(stops.strings or stops.tokens)
        self._has_stop_token = False
        self._num_characters = 0
        self.num_tokens = 0

    @property
    def is_stopped(self) -> bool:
        """Return whether a stop string or a stop token ended the answer."""
        return self._has_stop_token or self.stop_string is not None

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the answer, if any."""
        return self._stop_strings.found

    def push(self, tokens: Sequence[int]) -> Gain:
        """Accept tokens up to the one that completes a stop string, or up to a stop token."""
        texts: list[str] = []
        ends: list[int] = []
        for token in tokens:
            if self._can_stop and (self.is_stopped or self._is_left_out(token)):
                break
            self.num_tokens += 1
            may_end = self.num_tokens >= self._stops.min_tokens
            text = self._detokenizer.push((token,))
            self._num_characters += len(text)
            ends.append(self._num_characters)
            texts.append(self._stop_strings.push(text, may_end=may_end))
        return Gain("".join(texts), tuple(tokens[: len(texts)]), tuple(ends))

    def _is_left_out(self, token: int) -> bool:
        """Return whether `token` is a stop token that is not part of the answer.

        Records whether `token` is a stop token.
        """
        is_stop = token in self._stops.tokens and self.num_tokens >= self._stops.min_tokens
        self._has_stop_token = is_stop
        return is_stop and not self._stops.are_included

    def flush(self) -> Gain:
        """Return the text that was held back; the answer is over."""
        return Gain(self._stop_strings.flush())
