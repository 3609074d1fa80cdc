"""The commands for the engine's thread, which takes them between two steps.

A command about a sequence that is here is always taken, and each sequence makes a few of them at
most. The inbox is therefore bounded where nothing new comes while it has no room: what accepts
sequences asks for that first.
"""

from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Has room for `most` commands. `on_room` is called where they are taken, and must not block.

    It is called once the inbox is empty, if `has_room` was false before.
    """

    def __init__(self, most: int, on_room: Callable[[], None] = lambda: None) -> None:
        self._most = most
        self._on_room = on_room
        self._commands: SimpleQueue[T] = SimpleQueue()
        self._has_refused = False

    def __len__(self) -> int:
        return self._commands.qsize()

    def has_room(self) -> bool:
        """Whether anything new should come. From any thread."""
        if len(self) < self._most:
            return True
        self._has_refused = True
        return len(self) < self._most  # the thread that empties it may not have seen that in time

    def put(self, command: T) -> None:
        """From any thread; never blocks."""
        self._commands.put(command)

    def get(self, timeout: float | None = None) -> T:
        """The next command; blocks until there is one. Raises `queue.Empty` after `timeout`."""
        command = self._commands.get(timeout=timeout)
        if self._has_refused and not len(self):
            self._has_refused = False
            self._on_room()
        return command
