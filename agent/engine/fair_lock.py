"""A lock that passes from one thread to the next in the order in which they asked for it.

Two contexts of llama.cpp on one machine would only slow each other down, and with an ordinary lock
the thread that decodes would take it again before anyone else had woken up. With a turn to each
chunk and each step, a running stream waits for one chunk at most.
"""

from collections import deque
from threading import Lock
from types import TracebackType
from typing import Self

from ...shared.errors import EngineFailed


class FairLock:
    """`with turns:` waits for one's turn and holds it; `EngineFailed` once there are no more.

    Not reentrant.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._waiting: deque[Lock] = deque()
        self._is_taken = False
        self._is_over = False

    @property
    def num_waiting(self) -> int:
        """How many threads wait for their turn."""
        return len(self._waiting)

    def __enter__(self) -> Self:
        self._wait()
        if self._is_over:
            self._pass_on()
            raise EngineFailed("the engine has stopped")
        return self

    def close(self) -> None:
        """Wait for the last turn; there are no more after it."""
        self._wait()
        self._is_over = True
        self._pass_on()

    def _wait(self) -> None:
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return
            ticket = Lock()
            ticket.acquire()
            self._waiting.append(ticket)
        ticket.acquire()  # released by whoever passes the turn on, so it stays taken

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False
