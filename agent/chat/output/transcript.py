"""Streams one answer: tokens in, text out, until a stop string or a stop token ends the answer.

Invariants: every accepted token is in exactly one `Gain`; the texts joined are the answer, without
the stop string unless it is included. Tokens after the stop string are not accepted.
"""

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

_Utf8Decoder = getincrementaldecoder("utf-8")


class Detokenizer:
    """Turns tokens into text, and returns a character once all of its bytes have arrived.

    `piece` returns a token's bytes, which may be part of a character. If an answer ends within a
    character, the bytes of that character are dropped. Invalid UTF-8 becomes U+FFFD. The cost of a
    token does not grow with the text.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = _Utf8Decoder(errors="replace")

    def push(self, tokens: Iterable[int]) -> str:
        """Return the characters that `tokens` complete; may be empty."""
        return self._decoder.decode(b"".join(map(self._piece, tokens)))


class StopStrings:
    """Finds stop strings in streamed text, and holds back as little text as possible.

    Invariants: the boundaries of the pieces do not matter. The text returned plus the text held is
    all text so far. The text held is the longest suffix that is a prefix of a stop string. The stop
    string that is complete first wins. If several end at the same position, the longest wins.

    Each character costs one look-up, and while text is held, one comparison per stop string.
    """

    def __init__(self, stops: Sequence[str], *, are_included: bool = False) -> None:
        """If `are_included`, the stop string that is found is part of the text."""
        self._are_included = are_included
        self._longest_first = sorted(stops, key=len, reverse=True)
        self._beginnings = {stop[:end] for stop in stops for end in range(len(stop))}
        self._held = ""
        self.found: str | None = None

    def push(self, text: str, *, may_end: bool = True) -> str:
        """Return the text that can be sent now; always empty once a stop string was `found`.

        Without `may_end`, stop strings that are complete in `text` count as ordinary text.
        """
        if not self._longest_first:
            return text
        free: list[str] = []
        for character in text:
            if self.found is not None:
                break
            free.append(self._take(character, may_end=may_end))
        return "".join(free)

    def flush(self) -> str:
        """Return the text held back. The answer is over, so the held text is no stop string."""
        held, self._held = self._held, ""
        return held

    def _take(self, character: str, *, may_end: bool) -> str:
        held = self._held + character
        for stop in self._longest_first if may_end else ():
            if held.endswith(stop):
                self.found, self._held = stop, ""
                return held if self._are_included else held[: -len(stop)]
        start = 0
        while held[start:] not in self._beginnings:
            start += 1
        self._held = held[start:]
        return held[:start]


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

    The string or token that ends the answer belongs to the answer only if `are_included`. The
    answer does not end before `min_tokens` tokens.
    """

    strings: tuple[str, ...] = ()
    tokens: frozenset[int] = frozenset()
    min_tokens: int = 0
    are_included: bool = False


class Transcript:
    """The streamed answer to one request."""

    def __init__(self, piece: Callable[[int], bytes], stops: Stops) -> None:
        """Start a transcript without tokens. `piece` returns a token's bytes."""
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
