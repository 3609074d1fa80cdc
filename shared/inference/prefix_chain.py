"""Keys of a prompt's prefixes: a running hash, taken every few bytes and at message ends.

Two prompts with a common prefix have the same keys up to about the place where they differ. So a
key identifies a prefix, and an agent that has computed the prefix need not compute it again. The
distance between keys grows with the prompt. The length of a known prefix is underestimated by an
eighth at most, and 32 MiB have fewer than a thousand keys.

Keys are not salted. A client that makes keys collide gets a worse choice of agent, and learns no
text.

Balancers and agents compute the same keys from the same request, so an agent can report which
prefixes left its cache. A change of the keys raises the protocol's version.
"""

import json
from array import array
from hashlib import blake2b
from typing import Any, NamedTuple

from .conversation import ChatMessage, ImagePart, MediaPart
from .request import GenerateRequest

STEP = 64
"""Minimum bytes between two keys within a message."""

STEP_AT_ENDS = 16
"""Minimum bytes between a key and the key at a message's end."""

GROWTH = 8
"""The distance between keys is at least this part (1/8) of the prompt before them."""

GROWTH_AT_ENDS = 64
"""The distance to a key at a message's end is at least this part (1/64) of the prompt."""

MAX_BYTES = 2**22
"""Maximum bytes of a prompt that get keys; hashing them takes a millisecond."""

_SAMPLE = 1024
"""Characters hashed from each end of a picture; they weigh about as much as its tokens."""

_HASHED = 2**20
"""Maximum characters of a picture that are hashed completely, in a millisecond.

Only both ends of a longer picture are hashed. Pictures of the same length that differ only in the
middle count as equal.
"""

TOKEN_BYTES = 4
"""The number of bytes for which a token id counts."""


class PrefixChain(NamedTuple):
    """Keys of ever longer prefixes, and the byte at which each ends; `size` is the total."""

    keys: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    size: int = 0
    is_tokens: bool = False

    def positions(self, num_tokens: int) -> tuple[tuple[int, int], ...]:
        """Return the end of each prefix in tokens, with its key, for a prompt of `num_tokens`.

        For text this is an estimate, as if all parts of the text were equally dense.
        """
        return tuple(
            (max(end * num_tokens // self.size, 1), key)
            for end, key in zip(self.ends, self.keys, strict=True)
        )


NO_CHAIN = PrefixChain()


def chain_of(request: GenerateRequest) -> PrefixChain:
    """Return the chain of the prompt in reading order: tools, messages; or the raw prompt."""
    if request.n_discard is not None or request.prompt_logprobs:
        return NO_CHAIN  # its prefix is not kept, or computed anew
    if request.truncate_prompt_tokens is not None:
        return NO_CHAIN  # where it begins is known once it is tokenised
    adapters = _adapters(request)
    if request.messages is not None:
        return _of_messages(request, request.messages, adapters)
    if isinstance(request.prompt, tuple):
        ids = array("I", request.prompt).tobytes()
        return _of_raw(b"ids" + adapters, ids, is_tokens=True)
    return _of_raw(b"text" + adapters, _bytes(request.prompt or ""), is_tokens=False)


def _adapters(request: GenerateRequest) -> bytes:
    """Return bytes that name the adapters; prompts with different adapters share no prefix.

    An adapter's name is the part of `model` after the last colon. The colon can also be a part of
    the model's own name; then requests with and without that part share less.
    """
    if request.adapters is not None:
        return _json([(each.name, each.scale) for each in request.adapters])
    _, colon, adapter = (request.model or "").rpartition(":")
    return _json([(adapter, None)]) if colon else b"[]"


def _of_raw(kind: bytes, prompt: bytes, *, is_tokens: bool) -> PrefixChain:
    writer = _Writer(kind)
    writer.write(prompt)
    return writer.chain(is_tokens=is_tokens)


def _of_messages(
    request: GenerateRequest, messages: tuple[ChatMessage, ...], adapters: bytes
) -> PrefixChain:
    writer = _Writer(b"messages" + adapters)
    if request.tools:
        writer.write(_json(request.tools))
    if request.chat_template_kwargs:
        writer.write(_json(dict(request.chat_template_kwargs)))
    for message in messages:
        writer.write(_of_message(message))
        writer.ends_part()
    return writer.chain()


def _of_message(message: ChatMessage) -> bytes:
    parts = [message.role, message.name or "", "".join(message.texts)]
    if message.reasoning_content:
        parts.append(message.reasoning_content)
    parts += map(_of_media, message.media)
    data = _bytes("\0".join(parts))
    if message.tool_calls:
        data += _json(message.tool_calls)
    return data + b"\0\0"


def _of_media(part: MediaPart) -> str:
    """Return a text that identifies a picture or sound: length, digest, and both ends.

    Both ends are included so that media weigh about as much as their tokens.
    """
    data = part.image_url.url if isinstance(part, ImagePart) else part.input_audio.data
    whole = data if len(data) <= _HASHED else data[: _HASHED // 2] + data[-_HASHED // 2 :]
    digest = blake2b(_bytes(whole), digest_size=8).hexdigest()
    return f"{len(data)}{digest}{data[:_SAMPLE]}{data[-_SAMPLE:]}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _json(value: Any) -> bytes:
    return _bytes(json.dumps(value, ensure_ascii=False, default=str))


class _Writer:
    """Hashes the written bytes and takes keys."""

    def __init__(self, kind: bytes) -> None:
        self._hash = blake2b(kind, digest_size=8)
        self._size = 0
        self._cut_at = STEP
        self._keys: list[int] = []
        self._ends = [0]

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while self._size < MAX_BYTES and len(view) >= (room := self._cut_at - self._size):
            self._hash.update(view[:room])
            self._size += room
            self._cut()
            view = view[room:]
        if self._size < MAX_BYTES:
            self._hash.update(view)
        self._size += len(view)

    def ends_part(self) -> None:
        """End a message: take a key if the previous one is far enough away."""
        least = max(STEP_AT_ENDS, self._size // GROWTH_AT_ENDS)
        if self._size - self._ends[-1] >= least and self._size < MAX_BYTES:
            self._cut()

    def chain(self, *, is_tokens: bool = False) -> PrefixChain:
        return PrefixChain(tuple(self._keys), tuple(self._ends[1:]), self._size, is_tokens)

    def _cut(self) -> None:
        self._keys.append(int.from_bytes(self._hash.digest(), "big") >> 1)
        self._ends.append(self._size)
        self._cut_at = self._size + max(STEP, self._size // GROWTH)
