"""The file format of a stored prompt: tokens, KV cache states, and a checksum.

Integers are little-endian. The parts of a file, in order:

- magic, version (u16), length of the description (u32);
- the description (JSON: key, origin, counts, adapter if any);
- the tokens (i32 each);
- the sizes of pieces (tokens u32, bytes u64);
- the sizes of checkpoints (tokens u32, bytes of tail and state u64 each);
- the states of pieces, and the tails and states of checkpoints;
- a BLAKE2b digest of everything before it.

Only `Readable.read` does input. No more memory is allocated than the file's size justifies.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pydantic import TypeAdapter, ValidationError

from ....shared.inference import Count
from ....shared.strict import STRICT
from ..prompt import Prompt, border

MAGIC = b"ARRIEROP"
VERSION = 3
DIGEST_BYTES = 32
MAX_DESCRIPTION = 64 * 1024
"""Maximum bytes of a description; a key of 256 characters and an origin take a few hundred."""

_HEAD = struct.Struct("<8sHI")
_PIECE = struct.Struct("<IQ")
_CHECKPOINT = struct.Struct("<IQQ")
_TOKEN_BYTES = 4

State = bytes | memoryview
"""The content of KV cache cells, in the engine's own format."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The state of `num_tokens` consecutive tokens."""

    num_tokens: int
    state: State


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state at a checkpoint, for models that share prefixes only at checkpoints.

    The state belongs to the end of the first `length` tokens. The pieces have the attention of
    whole blocks; `tail` has the attention of the positions after the last block that ends before
    `length`. `state` is everything else: windows, recurrent states.
    """

    length: int
    tail: State
    state: State


@dataclass(frozen=True, slots=True)
class StoredPrompt:
    """The KV cache states of `prompt`, in pieces that are copied one by one.

    The pieces cover all positions from `start` on; without pieces the state could not be saved.
    States before `start` must come from elsewhere. If a sequence can begin only at `checkpoints`
    (the shortest first), pieces are whole blocks.
    """

    prompt: Prompt
    pieces: tuple[Piece, ...]
    start: int = 0
    checkpoints: tuple[StoredState, ...] = ()

    @property
    def is_usable(self) -> bool:
        """Return whether a sequence can begin with the stored prompt."""
        return bool(self.pieces or self.checkpoints)

    def num_common(self, keys: Sequence[int], most: int) -> int:
        """Return the length of the common prefix with `keys`, at most `most`.

        The prefix never ends within media.
        """
        stored = self.prompt.keys
        most = min(len(stored), most)
        return border(keys, next((i for i in range(most) if stored[i] != keys[i]), most))

    def first(self, num_tokens: int) -> "StoredPrompt":
        """Return the pieces that cover the first `num_tokens`, or the checkpoints within them."""
        if self.checkpoints:
            fitting = tuple(one for one in self.checkpoints if one.length <= num_tokens)
            return replace(self, prompt=self.prompt.part(0, num_tokens), checkpoints=fitting)
        end, count = self.start, 0
        while end < num_tokens:
            end += self.pieces[count].num_tokens
            count += 1
        return StoredPrompt(self.prompt.part(0, end), self.pieces[:count], self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelIdentity:
    """The identity of a model. `digest` is the digest of its weights' file."""

    __pydantic_config__ = STRICT

    architecture: str
    parameters: Count
    size_bytes: Count
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The model and engine that computed a state; only an equal origin can use the state.

    `engine` names llama.cpp's version, `cache` the types of its keys and values.
    """

    __pydantic_config__ = STRICT

    model: ModelIdentity
    engine: str
    cache: str

    @property
    def digest(self) -> str:
        """A digest that is equal for origins that can exchange states, as far as known."""
        return hashlib.blake2b(repr(self).encode(), digest_size=16).hexdigest()


class UnusableFile(Exception):
    """The file cannot be used; the message continues the words "prompt cache file X"."""


class Readable(Protocol):
    """The source of a file's bytes, in order."""

    def read(self, size: int, /) -> State:
        """Return `size` bytes; fewer only at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Description:
    __pydantic_config__ = STRICT

    key: str
    origin: Origin
    num_tokens: Count
    num_pieces: Count
    num_checkpoints: Count = 0
    adapter: str | None = None


_description: TypeAdapter[_Description] = TypeAdapter(_Description)


def pack(key: str, origin: Origin, prompt: StoredPrompt) -> tuple[State, ...]:
    """Return the parts of the file, to be written in order.

    The format stores tokens only. Raises `ValueError` for prompts with media and for prompts that
    lack their beginning.
    """
    if prompt.prompt.has_media or prompt.start:
        raise ValueError("prompts with media, and parts of prompts, cannot be stored")
    ids = prompt.prompt.tokens
    description = _description.dump_json(
        _Description(
            key=key,
            origin=origin,
            num_tokens=len(ids),
            num_pieces=len(prompt.pieces),
            num_checkpoints=len(prompt.checkpoints),
            adapter=prompt.prompt.adapter,
        ),
        exclude_none=True,
    )
    head = _HEAD.pack(MAGIC, VERSION, len(description)) + description
    tokens = struct.pack(_tokens(len(ids)), *ids)
    sizes = b"".join(_PIECE.pack(each.num_tokens, len(each.state)) for each in prompt.pieces)
    ends = b"".join(
        _CHECKPOINT.pack(each.length, len(each.tail), len(each.state))
        for each in prompt.checkpoints
    )
    parts = (
        head + tokens + sizes + ends,
        *(each.state for each in prompt.pieces),
        *(part for each in prompt.checkpoints for part in (each.tail, each.state)),
    )
    digest = _new_digest()
    for part in parts:
        digest.update(part)
    return (*parts, digest.digest())


def unpack(
    file: Readable, size: int, *, key: str, origin: Origin, scope: str | None = None
) -> StoredPrompt:
    """Read the prompt that `pack` wrote under `key`, from a file of `size` bytes.

    The result gets `scope`, which the file does not contain: the key must ensure the scope. Raises
    `UnusableFile`.
    """
    source = _Source(file, size)
    magic, version, length = _HEAD.unpack(source.take(_HEAD.size))
    if magic != MAGIC:
        raise UnusableFile("is not a stored prompt")
    if version != VERSION:
        raise UnusableFile(f"has format version {version}; this agent reads version {VERSION}")
    if length > MAX_DESCRIPTION:
        raise UnusableFile("is damaged: its description is too long")
    description = _described(bytes(source.take(length)))
    _check_belongs(description, key, origin)
    tokens = source.take(description.num_tokens * _TOKEN_BYTES)
    sizes = tuple(_PIECE.iter_unpack(source.take(description.num_pieces * _PIECE.size)))
    ends = tuple(
        _CHECKPOINT.iter_unpack(source.take(description.num_checkpoints * _CHECKPOINT.size))
    )
    _check_lengths(
        description.num_tokens,
        [num_tokens for num_tokens, _ in sizes],
        [length for length, *_ in ends],
    )
    pieces = tuple(Piece(num_tokens, source.take(num_bytes)) for num_tokens, num_bytes in sizes)
    checkpoints = tuple(
        StoredState(length, source.take(num_tail), source.take(num_state))
        for length, num_tail, num_state in ends
    )
    source.check_end()
    ids = struct.unpack(_tokens(description.num_tokens), tokens)
    prompt = Prompt(ids, adapter=description.adapter, scope=scope)
    return StoredPrompt(prompt, pieces, checkpoints=checkpoints)


class _Source:
    """The file, read in pieces and hashed on the way."""

    def __init__(self, file: Readable, size: int) -> None:
        self._file = file
        self._num_left = size - DIGEST_BYTES
        self._digest = _new_digest()

    def take(self, size: int) -> State:
        data: State = self._file.read(size) if size <= self._num_left else b""
        if len(data) != size:
            raise UnusableFile("is damaged: it ends too early")
        self._num_left -= size
        self._digest.update(data)
        return data

    def check_end(self) -> None:
        if self._num_left:
            raise UnusableFile(f"is damaged: it has {self._num_left} extra bytes")
        if self._file.read(DIGEST_BYTES) != self._digest.digest():
            raise UnusableFile("is damaged: its checksum is wrong")


def _described(data: bytes) -> _Description:
    try:
        return _description.validate_json(data)
    except ValidationError:
        raise UnusableFile("is damaged: its description is invalid") from None


def _check_lengths(num_tokens: int, pieces: list[int], checkpoints: list[int]) -> None:
    """Raise `UnusableFile` unless pieces cover all tokens, or fewer with checkpoints."""
    num_stored = sum(pieces)
    has_all = num_stored <= num_tokens if checkpoints else num_stored == num_tokens
    if 0 in pieces or not has_all:
        raise UnusableFile("is damaged: its pieces do not match its tokens")
    if any(not 0 < length <= num_tokens for length in checkpoints):
        raise UnusableFile("is damaged: its checkpoints do not match its tokens")
    if checkpoints != sorted(set(checkpoints)):
        raise UnusableFile("is damaged: its checkpoints do not match its tokens")


def _check_belongs(description: _Description, key: str, ours: Origin) -> None:
    theirs = description.origin
    if description.key != key:
        raise UnusableFile("belongs to another key")
    if theirs.model != ours.model:
        raise UnusableFile(f"was saved with another model ({theirs.model.architecture})")
    if theirs.engine != ours.engine:
        raise UnusableFile(f"was saved with another engine ({theirs.engine})")
    if theirs.cache != ours.cache:
        raise UnusableFile(f"was saved with another cache layout ({theirs.cache})")


def _new_digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=DIGEST_BYTES)


def _tokens(count: int) -> str:
    return f"<{count}i"
