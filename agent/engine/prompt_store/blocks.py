"""Blocks of prefixes, as the disk tier names and weighs them.

A prefix is on disk in blocks of `BLOCK` tokens. A block's name is a digest of all that its cells
depend on: the model and the cache (`Origin`), the adapter, who may share it, and every token from
the first one on. So prompts with a beginning in common have its blocks in common, and a further
turn of a conversation writes what is new in it. A block is of use with all those before it only.

Where sequences can begin at checkpoints alone, blocks have the attention, which can be cut. A
checkpoint is a file beside them, with what comes behind the last whole block before its end and
the state there. Its name says after which block it comes, and how many tokens later it ends.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from pydantic import TypeAdapter

from ..prompt import Prompt
from .stored_prompt import Origin

BLOCK = 256
"""Tokens: what is left over at the end of a prefix is computed again, in less than a second."""

PART_BYTES = 256 * 2**20
"""Bytes of a part of a prefix, which is read at once: host memory holds few of them."""

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
    """The blocks of a prompt's beginning that are on disk, of as many tokens each.

    Reading one takes about `seconds`. Where a sequence can begin at a `checkpoint` alone, they are
    the whole blocks before the last token of that.
    """

    names: tuple[str, ...]
    seconds: float = 0.0
    block: int = BLOCK
    checkpoint: CheckpointOnDisk | None = None

    @property
    def num_tokens(self) -> int:
        """How long that beginning is."""
        if self.checkpoint is not None:
            return self.checkpoint.length
        return self.block * len(self.names)

    def whole(self, num_tokens: int) -> int:
        """How many of the first `num_tokens` whole blocks hold."""
        return num_tokens // self.block * self.block

    def usable(self, num_tokens: int) -> int:
        """With how many of its first `num_tokens` a sequence could begin."""
        if self.checkpoint is not None:
            return self.checkpoint.length if self.checkpoint.length <= num_tokens else 0
        return self.whole(min(self.num_tokens, num_tokens))

    def reading(self, num_tokens: int) -> float:
        """Seconds that `num_tokens` of it take; of a checkpoint everything is read."""
        if self.checkpoint is not None:
            return self.seconds * len(self.names) + self.checkpoint.seconds
        return self.seconds * num_tokens / self.block


@dataclass(frozen=True, slots=True)
class ReadBlocks:
    """Read the blocks of `prompt`, all of which are whole, from position `start` on.

    What took longer than `patience` seconds is of no use: by then it would have been computed.
    With the name of a `checkpoint`, at which `prompt` ends, all of it is read or nothing.
    """

    prompt: Prompt
    names: tuple[str, ...]
    start: int
    patience: float
    checkpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """A prefix of whole blocks that is in the cache and that a sequence has left.

    To compute it takes `seconds`, as far as that is known. Where sequences can begin at checkpoints
    alone, it ends at one: these are the lengths of its last `checkpoints`, which grow. `marks` are
    the keys that balancers have for its beginnings, and how long these are.
    """

    prompt: Prompt
    seconds: float
    checkpoints: tuple[int, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()


def whole(num_tokens: int) -> int:
    """How many of the first `num_tokens` whole blocks hold."""
    return num_tokens // BLOCK * BLOCK


class BlockNames:
    """Names for what `origin` computes. They begin with its `tag`."""

    def __init__(self, origin: Origin) -> None:
        self._seed = blake2b(_origins.dump_json(origin), digest_size=_NAME_BYTES).digest()
        self.tag = self._seed[:_TAG_BYTES].hex()
        self.start = f"{self.tag}-{self._seed.hex()}"
        """What checkpoints come after that end within the first block."""

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

    def checkpoint(self, after: str, prompt: Prompt, start: int, end: int) -> str:
        """The name of that at the `end` of so many tokens, `after` the block up to `start`."""
        ids = prompt.token_ids(start, end)
        salt = repr((after, prompt.adapter, prompt.scope)).encode()
        data = salt + struct.pack(f"<{len(ids)}i", *ids)
        return f"{after}-{len(ids)}-{blake2b(data, digest_size=_NAME_BYTES).hexdigest()}"


def is_checkpoint(name: str) -> bool:
    """Whether a checkpoint has this name, and not a block."""
    return name.count("-") > 1


def place_of(name: str) -> tuple[str, int] | None:
    """After which block the checkpoint `name` comes, and how many tokens later it ends.

    `None`: that is the name of no checkpoint.
    """
    parts = name.split("-")
    if len(parts) != 4 or not _LENGTH.fullmatch(parts[2]):
        return None
    return "-".join(parts[:2]), int(parts[2])


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
