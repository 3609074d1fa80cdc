"""Names of prefixes, and which of them are gone since the last report.

Balancers know a prefix by a key of its text, the cache knows it by its tokens. So a sequence brings
the keys of its prompt's beginnings as marks on its positions. A key is held as long as one of its
marks is; when the last one goes, balancers are told.

Invariant: a key is held, or gone, or neither; never both. Both are bounded: a mark that finds no
room counts as gone, and when too many are gone, everything is.

The engine's thread makes marks, the event loop's takes what is gone. Each step is one operation of
a `dict`, so no lock is needed.
"""

from collections.abc import Mapping
from contextlib import suppress

from ..statistics import Gone

MAX_MARKS = 2**17
"""Keys that are held: some 15 MB."""

MAX_GONE = 2**16
"""Keys that are gone and not yet reported."""

Mark = tuple[int, int]
"""A position, from 1: how many tokens the prefix has; and its key."""


class PrefixMarks:
    """Counts the marks of each key."""

    def __init__(self, *, max_marks: int = MAX_MARKS, max_gone: int = MAX_GONE) -> None:
        self._max_marks = max_marks
        self._max_gone = max_gone
        self._counts: dict[int, int] = {}
        self._gone: dict[int, None] = {}
        self._lost_track = False

    def __len__(self) -> int:
        """Keys that are held."""
        return len(self._counts)

    def __contains__(self, key: object) -> bool:
        return key in self._counts

    @property
    def counts(self) -> Mapping[int, int]:
        """How many marks each key has that is held."""
        return self._counts

    def add(self, key: int) -> bool:
        """There is one more mark of `key`, if there is room for it."""
        count = self._counts.get(key, 0)
        if not count and len(self._counts) >= self._max_marks:
            self.absent(key)
            return False
        self._counts[key] = count + 1
        self._gone.pop(key, None)
        return True

    def release(self, key: int) -> None:
        """A mark of `key` is gone."""
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
            self.absent(key)

    def absent(self, key: int) -> None:
        """A balancer may believe that `key` is here: unless a mark of it is, it is gone."""
        if key in self._counts:
            return
        if len(self._gone) < self._max_gone:
            self._gone[key] = None
        else:
            self._lost_track = True

    def take_gone(self, most: int) -> Gone:
        """Up to `most` keys that are gone, each once. From any one thread."""
        if self._lost_track:
            self._lost_track = False
            self._gone.clear()
            return Gone(everything=True)
        keys: list[int] = []
        with suppress(KeyError):  # none is left; the engine's thread may have taken the last one
            while len(keys) < most:
                keys.append(self._gone.popitem()[0])
        return Gone(tuple(keys))
