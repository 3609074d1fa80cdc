"""Log-probabilities: packed until an answer is whole, and as JSON in OpenAI's format for chat."""

from collections.abc import Iterable, Iterator, Sequence
from math import isnan, nan
from struct import Struct
from typing import overload

from typing_extensions import TypedDict

from ....shared.inference import LogProb, TokenLogProbs


class TopLogProb(TypedDict):
    """A possible token. `bytes` may be a part of a character."""

    token: str
    logprob: float | None
    bytes: list[int]


class TokenLogProb(TopLogProb):
    """The chosen token, and the most likely tokens at this position."""

    top_logprobs: list[TopLogProb]


_HEAD = Struct("<IdI")
"""A token's id, its log-probability, and the length of its bytes, which follow."""


class PackedLogProbs(Sequence[TokenLogProbs]):
    """Log-probabilities, packed into one string of bytes per token, in a seventh of the memory."""

    def __init__(self) -> None:
        self._packed: list[bytes] = []

    def __len__(self) -> int:
        return len(self._packed)

    @overload
    def __getitem__(self, place: int, /) -> TokenLogProbs: ...

    @overload
    def __getitem__(self, place: slice, /) -> list[TokenLogProbs]: ...

    def __getitem__(self, place: int | slice) -> TokenLogProbs | list[TokenLogProbs]:
        packed = self._packed[place]
        return _unpacked(packed) if isinstance(packed, bytes) else [*map(_unpacked, packed)]

    def __iter__(self) -> Iterator[TokenLogProbs]:
        return map(_unpacked, self._packed)

    def add(self, log_probs: Iterable[TokenLogProbs]) -> None:
        """Add log-probabilities."""
        self._packed += map(_packed, log_probs)


def _packed(log_probs: TokenLogProbs) -> bytes:
    return b"".join(_record(each) for each in (log_probs.chosen, *log_probs.top))


def _record(one: LogProb) -> bytes:
    log_prob = nan if one.log_prob is None else one.log_prob
    return _HEAD.pack(one.token, log_prob, len(one.piece)) + one.piece


def _unpacked(packed: bytes) -> TokenLogProbs:
    place = 0
    found: list[LogProb] = []
    while place < len(packed):
        token, log_prob, length = _HEAD.unpack_from(packed, place)
        place += _HEAD.size
        piece = packed[place : place + length]
        found.append(LogProb(token, piece, None if isnan(log_prob) else log_prob))
        place += length
    return TokenLogProbs(found[0], tuple(found[1:]))


def entries(log_probs: Iterable[TokenLogProbs]) -> list[TokenLogProb]:
    """Return one entry per token: `token`, `logprob`, `bytes`, and the top tokens as
    `top_logprobs`.
    """
    return [
        {**_one(each.chosen), "top_logprobs": [_one(top) for top in each.top]} for each in log_probs
    ]


def text_of(log_prob: LogProb) -> str:
    r"""Return the token as text; bytes that are not valid UTF-8 alone are written as `\xe2`."""
    return log_prob.piece.decode("utf-8", "backslashreplace")


def _one(log_prob: LogProb) -> TopLogProb:
    return {
        "token": text_of(log_prob),
        "logprob": log_prob.log_prob,
        "bytes": list(log_prob.piece),
    }
