"""What a client was given of an answer before its agent was lost: another agent goes on from there.

An agent that forwards to another server goes on by the answer's text, since servers take no token
ids; so does an engine with an answer that did not come from engines like it alone. A continuation
for them has the text in place of the ids.

The next agent computes the prompt and these tokens, passes the tokens through everything that a
new token passes through, and sends only what follows. The counts say how much of what the tokens
gave was delivered: a text can be held back, and a step's items can be cut between two frames.
"""

import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field

from .strict import STRICT

CONTINUATION_VERSION = 1
"""Raised when an agent could not go on, with the same text, after what one of before had sent.

It is apart from the protocol's version, so that a field there parts no agents.
"""

MAX_BYTES = 4 * 2**22
"""Most bytes of packed token ids, four each."""

MAX_TEXT = 2**22
"""Characters of an answer's text; a longer one cannot move."""

BY_TEXT = "text:"
"""With this begin the fingerprints of agents that forward; alone: of answers of several agents."""

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """Go on after `packed_tokens`: the answer's token ids as little-endian 32-bit numbers.

    Delivered were `num_characters` of text, reasoning and arguments together; of the echoed prompt
    `num_prompt_characters`, with the log-probabilities of `num_prompt_log_probs` tokens; the
    log-probabilities of `num_log_probs` of the answer's tokens; the beginning of
    `num_calls_started` calls and the end of `num_calls`.

    By text: go on after `text`, which were `num_tokens` tokens.
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
        """The continuation after `tokens`."""
        known: dict[str, Any] = {**counts, "packed_tokens": _packed(tokens)}
        return cls(**known)

    @property
    def is_by_text(self) -> bool:
        """Whether an agent can go on that reads no token ids."""
        return not self.packed_tokens and len(self.text) == self.num_characters

    @property
    def tokens(self) -> tuple[int, ...]:
        """The ids. Raises `ValueError` when the bytes are not whole numbers of 32 bits."""
        ids = array("I")
        ids.frombytes(self.packed_tokens)
        return tuple(_little_endian(ids))


def _packed(tokens: Iterable[int]) -> bytes:
    return _little_endian(array("I", tokens)).tobytes()


def _little_endian(ids: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        ids.byteswap()
    return ids
