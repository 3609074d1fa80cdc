"""The protocol between two agents: a request for a prefix, and the length of the answer.

Integers are little-endian. The request: magic, version (u16), lengths of the description (u32) and
of the tokens (u32, their number); the description (JSON); the tokens (i32 each). The answer:
magic, version, and the number of bytes (u64) of the stored prompt that follows, which has the
ticket as its key; 0 means that no prompt follows.
"""

import struct
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from ...shared.inference.prefix_peers import Ticket
from ...shared.strict import STRICT
from ..engine.prompt import Prompt
from ..engine.prompt_store.stored_prompt import MAX_DESCRIPTION, Readable

_REQUEST_MAGIC = b"ARRIEROF"
_ANSWER_MAGIC = b"ARRIEROL"
VERSION = 1

_REQUEST = struct.Struct("<8sHII")
_ANSWER = struct.Struct("<8sHQ")
_MOST_DESCRIBED = 4096
_TOKEN_BYTES = 4
_ENTRY_BYTES = 16
"""Maximum bytes of a token in a stored prompt: its id, and its share of the table of pieces."""

_SPARE = MAX_DESCRIPTION + 1024
"""Bytes of a stored prompt that do not depend on its length."""


class ExchangeError(OSError):
    """The peer's message is invalid, or longer than allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Description:
    __pydantic_config__ = STRICT

    ticket: Ticket
    adapter: str | None = None
    scope: str | None = None


_description: TypeAdapter[_Description] = TypeAdapter(_Description)


@dataclass(frozen=True, slots=True)
class PrefixRequest:
    """A request for the longest available prefix of `prompt`, with its `ticket`."""

    ticket: str
    prompt: Prompt


def encode(request: PrefixRequest) -> bytes:
    """Encode `request`, whose prompt has only tokens."""
    ids = request.prompt.tokens
    described = _description.dump_json(
        _Description(
            ticket=request.ticket, adapter=request.prompt.adapter, scope=request.prompt.scope
        ),
        exclude_none=True,
    )
    head = _REQUEST.pack(_REQUEST_MAGIC, VERSION, len(described), len(ids))
    return head + described + struct.pack(f"<{len(ids)}i", *ids)


def read_request(source: Readable, most_tokens: int) -> PrefixRequest:
    """Read a peer's request. Raises `ExchangeError`."""
    magic, version, num_described, num_tokens = _REQUEST.unpack(source.read(_REQUEST.size))
    if (magic, version) != (_REQUEST_MAGIC, VERSION):
        raise ExchangeError("the peer speaks another protocol or version")
    if num_described > _MOST_DESCRIBED or not 0 < num_tokens <= most_tokens:
        raise ExchangeError("the peer asks for too much, or for nothing")
    try:
        described = _description.validate_json(bytes(source.read(num_described)))
    except ValidationError as error:
        raise ExchangeError("the peer's description is invalid") from error
    ids = struct.unpack(f"<{num_tokens}i", source.read(num_tokens * _TOKEN_BYTES))
    if min(ids) < 0:
        raise ExchangeError("the peer asks for negative token ids")
    prompt = Prompt(ids, adapter=described.adapter, scope=described.scope)
    return PrefixRequest(described.ticket, prompt)


def answer_head(num_bytes: int) -> bytes:
    """Return the head of an answer of `num_bytes`; 0 is a refusal."""
    return _ANSWER.pack(_ANSWER_MAGIC, VERSION, num_bytes)


def read_answer_head(source: Readable, most_bytes: int) -> int:
    """Return the number of bytes that follow.

    Raises `ExchangeError`, also for more than `most_bytes`.
    """
    magic, version, num_bytes = _ANSWER.unpack(source.read(_ANSWER.size))
    if (magic, version) != (_ANSWER_MAGIC, VERSION):
        raise ExchangeError("the peer speaks another protocol or version")
    if num_bytes > most_bytes:
        raise ExchangeError(f"the peer sends {num_bytes} bytes, more than {most_bytes}")
    return int(num_bytes)


def most_bytes(num_tokens: int, cell_bytes: int, state_bytes: int = 0) -> int:
    """Return the maximum bytes of a stored prompt of `num_tokens`.

    A short last block has more bytes than its tokens, but no more than a state has.
    """
    return num_tokens * (cell_bytes + _ENTRY_BYTES) + 2 * state_bytes + _SPARE
