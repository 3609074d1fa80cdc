"""The part of an answer that the client has when its agent is lost; another agent continues it.

The next agent computes the prompt and these tokens, passes the tokens through the parser and the
stop strings again, and sends only the text after the delivered part. The counts say how much was
delivered to the client. They are needed because a text can be held back, and the items of a step
can be cut between two frames.

An agent that forwards to another server continues the answer's text, since servers take no token
ids. An engine does the same if another kind of engine or server began the answer. In both cases
the continuation has the text instead of the ids.
"""

import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field

from .strict import STRICT

CONTINUATION_VERSION = 1
"""Version of the meaning of a `Continuation`, apart from the protocol's.

Raise it if an agent cannot continue, with the same text, an answer that an older agent began.
"""

MAX_BYTES = 4 * 2**22
"""Maximum bytes of packed token ids; an id has four bytes."""

MAX_TEXT = 2**22
"""Maximum characters of an answer's text; a longer answer cannot move."""

BY_TEXT = "text:"
"""Prefix of fingerprints of agents that forward. Alone, it marks answers of several agents."""

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """The answer's tokens so far, and how much of them the client has.

    `packed_tokens` are the token ids as little-endian 32-bit numbers. All other counts are about
    the client: it has `num_characters` of text, reasoning and arguments together. It has
    `num_prompt_characters` of the echoed prompt, with the log-probabilities of
    `num_prompt_log_probs` tokens. It has the log-probabilities of `num_log_probs` tokens of the
    answer, the beginning of `num_calls_started` calls, and the end of `num_calls`. To continue by
    text, `text` is the answer so far, which had `num_tokens` tokens.
    """

    __pydantic_config__ = ConfigDict(**STRICT, ser_json_bytes="base64", val_json_bytes="base64")

    packed_tokens: Annotated[bytes, Field(max_length=MAX_BYTES)] = b""
    num_characters: Count = 0
    num_prompt_characters: Count = 0
    num_prompt_log_probs: Count = 0
    num_log_probs: Count = 0
    num_calls_started: Count = 0
    num_calls: Count = 0
    text: Annotated[str, Field(max_length=MAX_TEXT, exclude_if=lambda text: not text)] = field(
        default="", repr=False
    )
    num_tokens: Annotated[int, Field(ge=0, exclude_if=lambda number: not number)] = 0

    @classmethod
    def after(cls, tokens: Iterable[int], **counts: int) -> Self:
        """Return the continuation after `tokens`."""
        known: dict[str, Any] = {**counts, "packed_tokens": _packed(tokens)}
        return cls(**known)

    @property
    def is_by_text(self) -> bool:
        """Return whether an agent that reads no token ids can continue."""
        return not self.packed_tokens and len(self.text) == self.num_characters

    @property
    def tokens(self) -> tuple[int, ...]:
        """The token ids. Raises `ValueError` if the bytes are not a multiple of 32 bits."""
        ids = array("I")
        ids.frombytes(self.packed_tokens)
        return tuple(_little_endian(ids))


def _packed(tokens: Iterable[int]) -> bytes:
    return _little_endian(array("I", tokens)).tobytes()


def _little_endian(ids: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        ids.byteswap()
    return ids
