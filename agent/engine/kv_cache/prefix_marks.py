"""Keys of cached prefixes, and the keys that left the cache since the last report.

Balancers identify a prefix by a key of its text, the cache by its tokens. So a sequence brings the
keys of its prompt's prefixes as marks on its positions. A key is held as long as one of its marks
exists; balancers are told when the last one is removed.

Invariant: a key is never both held and gone. Both sets are bounded: a mark without room counts as
gone, and if too many keys are gone, all of them count as gone.

The engine's thread adds marks, the event loop's thread takes gone keys. Each step is one operation
of a `dict`, so no lock is needed.
"""

from collections.abc import Mapping
from contextlib import suppress

from ..statistics import Gone

MAX_MARKS = 2**17
"""Maximum held keys: some 15 MB."""

MAX_GONE = 2**16
"""Maximum keys that are gone and not yet reported."""

Mark = tuple[int, int]
"""The length of a prefix in tokens, and its key."""


class PrefixMarks:
    """Counts the marks of each key."""

    def __init__(self, *, max_marks: int = MAX_MARKS, max_gone: int = MAX_GONE) -> None:
        self._max_marks = max_marks
        self._max_gone = max_gone
        self._counts: dict[int, int] = {}
        self._gone: dict[int, None] = {}
        self._lost_track = False

    def __len__(self) -> int:
        """Return the number of held keys."""
        return len(self._counts)

    def __contains__(self, key: object) -> bool:
        return key in self._counts

    @property
    def counts(self) -> Mapping[int, int]:
        """The number of marks of each held key."""
        return self._counts

    def add(self, key: int) -> bool:
        """Add a mark of `key`. Returns false if there is no room for it."""
        count = self._counts.get(key, 0)
        if not count and len(self._counts) >= self._max_marks:
            self.absent(key)
            return False
        self._counts[key] = count + 1
        self._gone.pop(key, None)
        return True

    def release(self, key: int) -> None:
        """Remove a mark of `key`."""
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
            self.absent(key)

    def absent(self, key: int) -> None:
        """Report `key` as gone, unless it is held: a balancer may believe that it is cached."""
        if key in self._counts:
            return
        if len(self._gone) < self._max_gone:
            self._gone[key] = None
        else:
            self._lost_track = True

    def take_gone(self, most: int) -> Gone:
        """Return up to `most` keys that are gone, each once. Callable from any one thread."""
        if self._lost_track:
            self._lost_track = False
            self._gone.clear()
            return Gone(everything=True)
        keys: list[int] = []
        with suppress(KeyError):  # none is left; the engine's thread may have taken the last one
            while len(keys) < most:
                keys.append(self._gone.popitem()[0])
        return Gone(tuple(keys))
