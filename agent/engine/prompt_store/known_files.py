"""What is known of the files on disk: their sizes, and the prefixes that they are good for.

Balancers know a prefix by a key of its text, the disk by its files. A key belongs to the file that
its prefix needs last. While that is there, the prefix is not gone, even where no memory has it.
When the file goes, the key is gone. Threads that read, write and look things up share this.

Invariants: a key belongs to one file that is there; files and bytes are counted. Keys are
bounded: those that were noted first are forgotten, which costs a balancer a wrong guess.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

from .blocks import is_checkpoint

MAX_KEYS = 2**16
"""Keys that are remembered, and those of them that are gone and not yet taken: some 10 MB each."""


class KnownFiles:
    """Files by name."""

    def __init__(self, *, max_keys: int = MAX_KEYS) -> None:
        self._max_keys = max_keys
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}
        self._num_bytes = 0
        self._num_blocks = 0
        self._files_of: OrderedDict[int, str] = OrderedDict()
        self._keys_of: dict[str, set[int]] = {}
        self._gone: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, name: object) -> bool:
        return name in self._sizes

    @property
    def num_bytes(self) -> int:
        """What all of them take."""
        return self._num_bytes

    @property
    def num_blocks(self) -> int:
        """How many of them are no checkpoints."""
        return self._num_blocks

    @property
    def num_keys(self) -> int:
        """Keys that are remembered."""
        return len(self._files_of)

    # ---- files

    def add(self, name: str, size: int) -> None:
        """A file is there, and has so many bytes."""
        with self._lock:
            self._num_bytes += size - self._sizes.get(name, 0)
            self._num_blocks += name not in self._sizes and not is_checkpoint(name)
            self._sizes[name] = size

    def drop(self, name: str) -> None:
        """A file is gone, if it was there."""
        with self._lock:
            self._drop(name)

    def replace(self, sizes: Mapping[str, int]) -> None:
        """These are all that there are."""
        with self._lock:
            for name in self._sizes.keys() - sizes.keys():
                self._drop(name)
            self._sizes = dict(sizes)
            self._num_bytes = sum(sizes.values())
            self._num_blocks = sum(not is_checkpoint(name) for name in sizes)

    def _drop(self, name: str) -> None:
        if name not in self._sizes:
            return
        self._num_bytes -= self._sizes.pop(name)
        self._num_blocks -= not is_checkpoint(name)
        for key in self._keys_of.pop(name, ()):
            del self._files_of[key]
            self._gone[key] = None
        while len(self._gone) > self._max_keys:
            self._gone.popitem(last=False)

    # ---- keys

    def note(self, key: int, name: str) -> None:
        """The prefix `key` needs the file `name` last; nothing changes where that is not there."""
        with self._lock:
            if name not in self._sizes:
                return
            self._forget(key)
            self._files_of[key] = name
            self._keys_of.setdefault(name, set()).add(key)
            self._gone.pop(key, None)
            if len(self._files_of) > self._max_keys:
                self._forget(next(iter(self._files_of)))

    def without(self, keys: Iterable[int]) -> tuple[int, ...]:
        """Those of `keys` that belong to no file."""
        return tuple(key for key in keys if key not in self._files_of)

    def take_gone(self, is_elsewhere: Callable[[int], bool]) -> tuple[int, ...]:
        """Keys whose files went since the last call, unless the prefix `is_elsewhere`."""
        with self._lock:
            gone, self._gone = self._gone, OrderedDict()
        return tuple(key for key in gone if not is_elsewhere(key))

    def _forget(self, key: int) -> None:
        name = self._files_of.pop(key, None)
        if name is None:
            return
        keys = self._keys_of[name]
        keys.remove(key)
        if not keys:
            del self._keys_of[name]

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        pairs = {(key, name) for name, keys in self._keys_of.items() for key in keys}
        if pairs != set(self._files_of.items()):
            raise RuntimeError("keys and files disagree")
        if not self._keys_of.keys() <= self._sizes.keys():
            raise RuntimeError("a key belongs to a file that is not there")
        if self._num_bytes != sum(self._sizes.values()):
            raise RuntimeError("bytes are miscounted")
        if self._num_blocks != sum(not is_checkpoint(name) for name in self._sizes):
            raise RuntimeError("blocks are miscounted")
        if max(len(self._files_of), len(self._gone)) > self._max_keys:
            raise RuntimeError("too many keys")
