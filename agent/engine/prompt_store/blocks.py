"""Blocks of prefixes: their names on disk, and the cost of reading them.

A prefix is on disk in blocks of `BLOCK` tokens. A block's name is a digest of everything that its
cells depend on: the model and the cache (`Origin`), the adapter, the scope, and every token from
the first one on. So prompts with a common prefix share its blocks, and the next turn of a
conversation writes only its new blocks. A block is useful only with all blocks before it.

If sequences can begin only at checkpoints, blocks have the attention, which can be cut. A
checkpoint is a separate file. It has the tokens between the last whole block and the checkpoint,
and the state at the checkpoint. Its name says which block it follows, and how many tokens later it
ends.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from pydantic import TypeAdapter

from ..capacity import BLOCK
from ..prompt import Prompt
from .stored_prompt import Origin

PART_BYTES = 256 * 2**20
"""Bytes of a prefix that are read at once; a limit, since host memory is scarce."""

WORTH = 2.0
"""Write a block only if computing it takes at least this many times as long as reading it.

An existing block is read even if reading is only a little faster than computing.
"""

LATENCY = 0.002
"""Seconds to read any file, however small."""

FIRST_RATE = 2**30
"""Bytes per second that a disk is assumed to read at first. Computing checksums takes as long."""

HOPE = 0.98
"""Factor on the price whenever a prefix is found, so that a slow disk is tried again later."""

_FORGETTING = 0.8
_NAME_BYTES = 24
_TAG_BYTES = 6
_TOKENS = struct.Struct(f"<{BLOCK}i")

_LENGTH = re.compile("[1-9][0-9]{0,3}")
_origins = TypeAdapter(Origin)


@dataclass(frozen=True, slots=True)
class CheckpointOnDisk:
    """The checkpoint at the end of the first `length` tokens. Reading it takes `seconds`."""

    name: str
    length: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class OnDisk:
    """The blocks on disk of a prompt's prefix, with `block` tokens each.

    Reading one block takes about `seconds`. If sequences can begin only at a `checkpoint`, the
    blocks are the whole blocks before the checkpoint's last token.
    """

    names: tuple[str, ...]
    seconds: float = 0.0
    block: int = BLOCK
    checkpoint: CheckpointOnDisk | None = None

    @property
    def num_tokens(self) -> int:
        """The length of the prefix in tokens."""
        if self.checkpoint is not None:
            return self.checkpoint.length
        return self.block * len(self.names)

    def whole(self, num_tokens: int) -> int:
        """Return how many of the first `num_tokens` tokens are in whole blocks."""
        return num_tokens // self.block * self.block

    def usable(self, num_tokens: int) -> int:
        """Return with how many of the first `num_tokens` tokens a sequence could begin."""
        if self.checkpoint is not None:
            return self.checkpoint.length if self.checkpoint.length <= num_tokens else 0
        return self.whole(min(self.num_tokens, num_tokens))

    def reading(self, num_tokens: int) -> float:
        """Return the seconds to read `num_tokens` tokens; with a checkpoint, the seconds to read
        all.
        """
        if self.checkpoint is not None:
            return self.seconds * len(self.names) + self.checkpoint.seconds
        return self.seconds * num_tokens / self.block


@dataclass(frozen=True, slots=True)
class ReadBlocks:
    """Read the whole blocks of `prompt` from position `start` on.

    A read that takes longer than `patience` seconds is useless: computing would have been faster.
    With the name of a `checkpoint`, at which `prompt` ends, the read must be complete.
    """

    prompt: Prompt
    names: tuple[str, ...]
    start: int
    patience: float
    checkpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """A cached prefix of whole blocks that a sequence has left.

    Computing the prefix takes `seconds`, as far as known. If sequences can begin only at
    checkpoints, the prefix ends at a checkpoint, and `checkpoints` has the increasing lengths of
    its last checkpoints. `marks` has the keys by which balancers ask for its parts, with their
    lengths.
    """

    prompt: Prompt
    seconds: float
    checkpoints: tuple[int, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()


def whole(num_tokens: int) -> int:
    """Return how many of the first `num_tokens` tokens are in whole blocks."""
    return num_tokens // BLOCK * BLOCK


class BlockNames:
    """Names for blocks and checkpoints computed by `origin`. All names begin with its `tag`."""

    def __init__(self, origin: Origin) -> None:
        self._seed = blake2b(_origins.dump_json(origin), digest_size=_NAME_BYTES).digest()
        self.tag = self._seed[:_TAG_BYTES].hex()
        self.start = f"{self.tag}-{self._seed.hex()}"
        """The name that precedes a checkpoint which ends within the first block."""

    def of(self, prompt: Prompt) -> Iterator[str]:
        """Yield the names of the whole blocks of `prompt`, up to its first picture."""
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

    def checkpoint(self, after: str, prompt: Prompt, start: int, end: int) -> str:
        """Return the name of the checkpoint at `end` tokens.

        `after` names the block that ends at `start`.
        """
        ids = prompt.token_ids(start, end)
        salt = repr((after, prompt.adapter, prompt.scope)).encode()
        data = salt + struct.pack(f"<{len(ids)}i", *ids)
        return f"{after}-{len(ids)}-{blake2b(data, digest_size=_NAME_BYTES).hexdigest()}"


def is_checkpoint(name: str) -> bool:
    """Return whether `name` belongs to a checkpoint, not to a block."""
    return name.count("-") > 1


def place_of(name: str) -> tuple[str, int] | None:
    """Return the block before the checkpoint `name`, and how many tokens later it ends.

    Returns `None` if the name belongs to no checkpoint.
    """
    parts = name.split("-")
    if len(parts) != 4 or not _LENGTH.fullmatch(parts[2]):
        return None
    return "-".join(parts[:2]), int(parts[2])


class ReadingPrice:
    """The cost of reading, learnt from reads."""

    def __init__(self) -> None:
        self._num_bytes = 0.0
        self._seconds = 0.0

    def observe(self, num_bytes: int, seconds: float) -> None:
        """Learn from a block of `num_bytes` that was read and checked in `seconds`."""
        self._num_bytes = _FORGETTING * self._num_bytes + num_bytes
        self._seconds = _FORGETTING * self._seconds + max(0.0, seconds - LATENCY)

    def doubt(self) -> None:
        """Reduce the price a little: reading may have become cheaper."""
        self._seconds *= HOPE

    def seconds(self, num_bytes: int) -> float:
        """Return the expected seconds to read a block of `num_bytes`."""
        price = self._seconds / self._num_bytes if self._num_bytes else 1 / FIRST_RATE
        return LATENCY + num_bytes * price
