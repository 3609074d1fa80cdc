"""What has arrived of all files of a model together, told a few times a second."""

from collections.abc import Callable

Tell = Callable[[str, int, int | None], None]
"""The file on its way, how many bytes of the model are here, and of how many."""

INTERVAL = 0.25
"""Least seconds between two reports."""


class Progress:
    """Adds up the model's files, which arrive one after the other."""

    def __init__(self, tell: Tell, now: Callable[[], float]) -> None:
        self._tell = tell
        self._now = now
        self._before = 0
        self._total: int | None = None
        self._last = float("-inf")

    def expect(self, total: int | None) -> None:
        """The size of all files together, once it is known."""
        self._total = total

    def arrived(self, file: str, size: int, file_size: int | None = None) -> None:
        """`size` bytes of `file` are here; `file_size` is the total where `expect` told none."""
        if self._now() - self._last >= INTERVAL:
            self._last = self._now()
            self._tell(file, self._before + size, self._total or file_size)

    def whole(self, size: int) -> None:
        """The current file is here; `size` is its size."""
        self._before += size
