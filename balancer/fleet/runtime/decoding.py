"""Messages of agents, decoded within bounds that no honest one comes near.

pydantic decodes a message in one go, and nothing else runs meanwhile: 30 MB of empty items take
seconds, on a thread as well. So what a large message would cost is counted first, a part in each
turn of the event loop. Honest ones are small, because agents cut what they send (`frames`,
`agent/link/outgoing`), except for two replies: embeddings, which are few long strings and cost
next to nothing, and the tokens of a text, which are decoded in parts.
"""

import asyncio
from dataclasses import replace

from pydantic import TypeAdapter

from ....shared.errors import InvalidRequest
from ....shared.framing.frames import PIECE_BYTES
from ....shared.inference import MAX_TOKEN_IDS, TokenId
from ....shared.json_size import JsonCounter, JsonLimits
from ....shared.messages import FromAgent, Reply, decode_from_agent
from ....shared.queries import Tokenized
from ....shared.strict import ListOf

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Of any message but a reply. The longest honest one is a call with very long arguments."""

LIMITS = JsonLimits(values=2**16, strings=2**15, containers=2**13)
"""Twice what the largest list of log-probabilities or of scores has."""

MAX_ESCAPES = 2**20
"""Backslashes; each costs ten times what another character costs."""

COUNTED_AT_ONCE = 256 * 1024
TOKENS_AT_ONCE = 64 * 1024
"""Bytes in one turn of the event loop."""

_REPLY = b'{"type":"reply",'
_TOKENIZED = b'"result":{"type":"tokenized","tokens":['
_END = b"]}}"
_HEAD_BYTES = 512

_token_ids: TypeAdapter[tuple[int, ...]] = TypeAdapter(ListOf[TokenId])


class CostlyMessage(ValueError):
    """A message that would take long to decode."""


async def decoded(text: bytes) -> FromAgent:
    """The message in `text`. Raises `CostlyMessage` and `pydantic.ValidationError`."""
    if len(text) <= PIECE_BYTES:
        return decode_from_agent(text)
    is_reply = text.startswith(_REPLY)
    if is_reply and (start := text.find(_TOKENIZED, 0, _HEAD_BYTES)) > 0 and text.endswith(_END):
        return await _tokenized(text, start + len(_TOKENIZED))
    if not is_reply and len(text) > MAX_MESSAGE_BYTES:
        raise CostlyMessage(f"it has more than {MAX_MESSAGE_BYTES} bytes")
    await _check(text)
    return decode_from_agent(text)


async def _check(text: bytes) -> None:
    """Raises `CostlyMessage`."""
    counter = JsonCounter(LIMITS)
    num_escapes = 0
    for start in range(0, len(text), COUNTED_AT_ONCE):
        part = text[start : start + COUNTED_AT_ONCE]
        num_escapes += part.count(b"\\")
        if num_escapes > MAX_ESCAPES:
            raise CostlyMessage(f"it has more than {MAX_ESCAPES} backslashes, which is the limit")
        try:
            counter.add(part)
        except InvalidRequest as error:
            raise CostlyMessage(error.message) from error
        await asyncio.sleep(0)


async def _tokenized(text: bytes, start: int) -> FromAgent:
    """The reply whose tokens begin at `start`, decoded in parts: each is a list of its own."""
    message = decode_from_agent(text[:start] + _END)
    end = len(text) - len(_END)
    tokens: list[int] = []
    while start < end:
        comma = text.find(b",", start + TOKENS_AT_ONCE, end)
        stop = end if comma < 0 else comma
        tokens += _token_ids.validate_json(b"[%b]" % text[start:stop])
        if len(tokens) > MAX_TOKEN_IDS:
            raise CostlyMessage(f"it has more than {MAX_TOKEN_IDS} tokens")
        start = stop + 1
        await asyncio.sleep(0)
    if not isinstance(message, Reply) or not isinstance(message.result, Tokenized):
        raise CostlyMessage("only a reply may have that many tokens")
    return replace(message, result=replace(message.result, tokens=tuple(tokens)))
