"""The keys of a prompt's beginnings: a running hash, cut every few bytes and at messages' ends.

Two prompts that begin alike have the same keys up to about where they differ. So a key names a
beginning, and who computed it once need not do so again. Cuts lie further apart the longer the
prompt: the known part of a beginning is underestimated by an eighth at most, and 32 MiB have fewer
than a thousand keys.

Keys are not salted: a collision costs its maker a worse choice of agent, and no text.

Balancers and agents make the same keys of the same request: so an agent can report which beginnings
left its cache without hearing of keys before. A change of them raises the protocol's version.
"""

import json
from array import array
from hashlib import blake2b
from typing import Any, NamedTuple

from .conversation import ChatMessage, ImagePart, MediaPart
from .request import GenerateRequest

STEP = 64
"""Fewest bytes between two keys within a message."""

STEP_AT_ENDS = 16
"""Fewest bytes between a key and that of a message's end."""

GROWTH = 8
"""After so many steps, the next key comes after this part of what was before."""

GROWTH_AT_ENDS = 64
"""Messages end more often than that: their ends are keys where this part has passed."""

MAX_BYTES = 2**22
"""What comes behind so many bytes has no keys: hashing takes a millisecond up to there."""

_SAMPLE = 1024
"""Characters from both ends of a picture: they weigh about as its tokens do."""

_HASHED = 2**20
"""Characters of a picture that are hashed whole, in a millisecond; of a longer one, its ends are.

Files of one length that differ only between those are taken for the same.
"""

TOKEN_BYTES = 4
"""A token id counts as so many bytes."""


class PrefixChain(NamedTuple):
    """Keys of ever longer beginnings, and where each ends, in bytes; `size` is the whole prompt.

    Where the prompt `is_tokens`, each token has `TOKEN_BYTES`.
    """

    keys: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    size: int = 0
    is_tokens: bool = False

    def positions(self, num_tokens: int) -> tuple[tuple[int, int], ...]:
        """Where the keys end in a prompt of so many tokens, and the keys.

        For text that is an estimate: all of it counts as equally dense.
        """
        return tuple(
            (max(end * num_tokens // self.size, 1), key)
            for end, key in zip(self.ends, self.keys, strict=True)
        )


NO_CHAIN = PrefixChain()


def chain_of(request: GenerateRequest) -> PrefixChain:
    """The chain of what the model will read first: tools, then messages; or the raw prompt."""
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
    """What is applied beside the model: nothing is shared with a prompt under something else.

    An adapter's name is what follows the last colon of `model`. That may as well be a part of the
    model's own name; then requests that name it and those that leave it out share less.
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
    """What distinguishes one picture or sound: its length, a digest, and its ends as weight."""
    data = part.image_url.url if isinstance(part, ImagePart) else part.input_audio.data
    whole = data if len(data) <= _HASHED else data[: _HASHED // 2] + data[-_HASHED // 2 :]
    digest = blake2b(_bytes(whole), digest_size=8).hexdigest()
    return f"{len(data)}{digest}{data[:_SAMPLE]}{data[-_SAMPLE:]}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _json(value: Any) -> bytes:
    return _bytes(json.dumps(value, ensure_ascii=False, default=str))


class _Writer:
    """Hashes what is written, and cuts."""

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
        """A message is over."""
        least = max(STEP_AT_ENDS, self._size // GROWTH_AT_ENDS)
        if self._size - self._ends[-1] >= least and self._size < MAX_BYTES:
            self._cut()

    def chain(self, *, is_tokens: bool = False) -> PrefixChain:
        return PrefixChain(tuple(self._keys), tuple(self._ends[1:]), self._size, is_tokens)

    def _cut(self) -> None:
        self._keys.append(int.from_bytes(self._hash.digest(), "big") >> 1)
        self._ends.append(self._size)
        self._cut_at = self._size + max(STEP, self._size // GROWTH)
