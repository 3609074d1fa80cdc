"""Blocks of prefixes, as the disk tier names and weighs them.

A prefix is on disk in blocks of `BLOCK` tokens. A block's name is a digest of all that its cells
depend on: the model and the cache (`Origin`), the adapter, who may share it, and every token from
the first one on. So prompts with a beginning in common have its blocks in common, and a further
turn of a conversation writes what is new in it. A block is of use with all those before it only.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from pydantic import TypeAdapter

from ..prompt import Prompt
from .stored_prompt import Origin

BLOCK = 256
"""Tokens: what is left over at the end of a prefix is computed again, in less than a second."""

WORTH = 2.0
"""So many times as long as reading takes must computing take, before a block is written. A block
that is there already is read as soon as that is faster."""

LATENCY = 0.002
"""Seconds that a file takes however small it is."""

FIRST_RATE = 2**30
"""Bytes a second that a disk is thought to give at first. Checksums take as long."""

HOPE = 0.98
"""What is left of the price each time that there is something to read: a disk that was slow once is
tried again some time."""

_FORGETTING = 0.8
_NAME_BYTES = 24
_TAG_BYTES = 6
_TOKENS = struct.Struct(f"<{BLOCK}i")

_origins = TypeAdapter(Origin)


@dataclass(frozen=True, slots=True)
class OnDisk:
    """The blocks of a prompt's beginning that are on disk, of as many tokens each.

    Reading one takes about `seconds`.
    """

    names: tuple[str, ...]
    seconds: float = 0.0
    block: int = BLOCK

    @property
    def num_tokens(self) -> int:
        """How long that beginning is."""
        return self.block * len(self.names)

    def whole(self, num_tokens: int) -> int:
        """How many of the first `num_tokens` whole blocks hold."""
        return num_tokens // self.block * self.block


@dataclass(frozen=True, slots=True)
class ReadBlocks:
    """Read the blocks of `prompt`, all of which are whole, from position `start` on.

    What took longer than `patience` seconds is of no use: by then it would have been computed.
    """

    prompt: Prompt
    names: tuple[str, ...]
    start: int
    patience: float


@dataclass(frozen=True, slots=True)
class Left:
    """A prefix of whole blocks that is in the cache and that a sequence has left.

    To compute it takes `seconds`, as far as that is known.
    """

    prompt: Prompt
    seconds: float


def whole(num_tokens: int) -> int:
    """How many of the first `num_tokens` whole blocks hold."""
    return num_tokens // BLOCK * BLOCK


class BlockNames:
    """Names for what `origin` computes. They begin with its `tag`."""

    def __init__(self, origin: Origin) -> None:
        self._seed = blake2b(_origins.dump_json(origin), digest_size=_NAME_BYTES).digest()
        self.tag = self._seed[:_TAG_BYTES].hex()

    def of(self, prompt: Prompt) -> Iterator[str]:
        """The names of the whole blocks of `prompt`, up to its first picture. Lazy."""
        digest = self._seed
        salt = repr((prompt.adapter, prompt.scope)).encode()
        for start in range(0, whole(len(prompt)), BLOCK):
            try:
                ids = prompt.token_ids(start, start + BLOCK)
            except ValueError:
                return
            data = digest + salt + _TOKENS.pack(*ids)
            digest = blake2b(data, digest_size=_NAME_BYTES).digest()
            yield f"{self.tag}-{digest.hex()}"


class ReadingPrice:
    """What reading costs, learnt from what was read."""

    def __init__(self) -> None:
        self._num_bytes = 0.0
        self._seconds = 0.0

    def observe(self, num_bytes: int, seconds: float) -> None:
        """A block of so many bytes was read and checked."""
        self._num_bytes = _FORGETTING * self._num_bytes + num_bytes
        self._seconds = _FORGETTING * self._seconds + max(0.0, seconds - LATENCY)

    def doubt(self) -> None:
        """There is something to read: it may be cheaper than it was."""
        self._seconds *= HOPE

    def seconds(self, num_bytes: int) -> float:
        """What a block of so many bytes takes."""
        price = self._seconds / self._num_bytes if self._num_bytes else 1 / FIRST_RATE
        return LATENCY + num_bytes * price
