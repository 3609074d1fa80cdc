"""A lock that passes from one thread to the next in the order of their requests.

Two contexts of llama.cpp on one machine would only slow each other down. With an ordinary lock the
thread that decodes would take the lock again before other threads wake up. With one turn per chunk
and per step, a running stream waits for at most one chunk.

The lock also guards the weights' lifetime. A thread that needs the weights but computes nothing,
such as a thread that opens a context, shares them without a turn.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Lock
from typing import Self

from ...shared.errors import EngineFailed


class FairLock:
    """`with turns:` waits for a turn and holds it; raises `EngineFailed` after `close`.

    Not reentrant.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._waiting: deque[Lock] = deque()
        self._is_taken = False
        self._is_over = False
        self._num_sharing = 0
        self._shared = Condition(self._guard)

    @property
    def num_waiting(self) -> int:
        """The number of threads that wait for their turn."""
        return len(self._waiting)

    def __enter__(self) -> Self:
        self._wait()
        if self._is_over:
            self._pass_on()
            raise EngineFailed("the engine has stopped")
        return self

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Keep the weights from being freed inside the block, without taking a turn.

        Raises `EngineFailed` after `close`.
        """
        with self._guard:
            if self._is_over:
                raise EngineFailed("the engine has stopped")
            self._num_sharing += 1
        try:
            yield
        finally:
            with self._guard:
                self._num_sharing -= 1
                self._shared.notify_all()

    def close(self) -> None:
        """Wait until the last turn and all sharing threads are done. Later requests fail."""
        self._wait()
        with self._guard:
            self._is_over = True
            self._shared.wait_for(lambda: self._num_sharing == 0)
        self._pass_on()

    def _wait(self) -> None:
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return
            ticket = Lock()
            ticket.acquire()
            self._waiting.append(ticket)
        ticket.acquire()  # released by the thread that passes the turn on, so it stays taken

    def __exit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False
