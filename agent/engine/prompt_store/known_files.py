"""The known files on disk: their sizes, and the keys of the prefixes that need them.

Balancers identify a prefix by a key of its text, the disk by its files. A key belongs to the last
file that its prefix needs. While that file exists, the prefix is available, even if no memory has
it. When the file is removed, its keys are removed as well. Threads that read, write and look up
share this object.

Invariants: a key belongs to one existing file; files and bytes are counted. The number of keys is
bounded: the oldest keys are forgotten, and then a balancer may guess wrong.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

from .blocks import is_checkpoint

MAX_KEYS = 2**16
"""Maximum keys remembered, and maximum removed keys not yet taken: about 10 MB each."""


class KnownFiles:
    """Files by name. Thread-safe."""

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
        """The bytes of all files."""
        return self._num_bytes

    @property
    def num_blocks(self) -> int:
        """The number of files that are not checkpoints."""
        return self._num_blocks

    @property
    def num_keys(self) -> int:
        """The number of keys remembered."""
        return len(self._files_of)

    # ---- files

    def add(self, name: str, size: int) -> None:
        """Add a file of `size` bytes."""
        with self._lock:
            self._num_bytes += size - self._sizes.get(name, 0)
            self._num_blocks += name not in self._sizes and not is_checkpoint(name)
            self._sizes[name] = size

    def drop(self, name: str) -> None:
        """Remove a file, if it is known."""
        with self._lock:
            self._drop(name)

    def replace(self, sizes: Mapping[str, int]) -> None:
        """Replace all known files by the files in `sizes`."""
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
        """Record that the prefix `key` needs the file `name` last, if that file is known."""
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
        """Return the `keys` that belong to no file."""
        return tuple(key for key in keys if key not in self._files_of)

    def take_gone(self, is_elsewhere: Callable[[int], bool]) -> tuple[int, ...]:
        """Return keys whose files were removed since the last call.

        Keys whose prefix `is_elsewhere` are omitted.
        """
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
        """Raise `RuntimeError` if an invariant is broken; for tests."""
        pairs = {(key, name) for name, keys in self._keys_of.items() for key in keys}
        if pairs != set(self._files_of.items()):
            raise RuntimeError("keys and files disagree")
        if not self._keys_of.keys() <= self._sizes.keys():
            raise RuntimeError("a key belongs to an unknown file")
        if self._num_bytes != sum(self._sizes.values()):
            raise RuntimeError("bytes are miscounted")
        if self._num_blocks != sum(not is_checkpoint(name) for name in self._sizes):
            raise RuntimeError("blocks are miscounted")
        if max(len(self._files_of), len(self._gone)) > self._max_keys:
            raise RuntimeError("too many keys")
