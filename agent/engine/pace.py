"""A pace that tests set from outside, so that they can act in the middle of an answer.

Only tests set its two environment variables:

- `ARRIERO_PACE_SOCKET` is the path of a Unix socket. A test listens there and sends how many steps
  may be computed: a number, or `free`, one per line. The engine answers each line with a line once
  it has obeyed. Only steps that give some sequence a token count. Steps of prefill alone are free
  until the number is used up; at 0 no step is computed. An optional second number is the maximum
  of steps per second. The engine waits for the first line before it begins. If the other side
  closes the socket, the engine runs free.
- `ARRIERO_PACE_STEPS` is the maximum of steps per second: each step takes at least that long.
"""

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from threading import Thread

SOCKET = "ARRIERO_PACE_SOCKET"
STEPS = "ARRIERO_PACE_STEPS"
FREE = b"free"


@dataclass(frozen=True, slots=True)
class Allow:
    """Allow this many steps that give tokens; `None` lifts the limit.

    A step takes at least `shortest` seconds. `obeyed` is called on the engine's thread between two
    steps.
    """

    num_steps: int | None
    obeyed: Callable[[], None]
    shortest: float = 0.0


class Pace:
    """Slows the step loop; does nothing if neither environment variable is set.

    `allow` passes orders from the socket to the engine's thread. Raises `OSError` if nothing
    listens, and `ValueError` for an invalid number.
    """

    def __init__(self, environ: Mapping[str, str], allow: Callable[[Allow], None]) -> None:
        self._num_left: int | None = None
        steps = environ.get(STEPS)
        self._always = self._shortest = 1 / float(steps) if steps else 0.0
        if path := environ.get(SOCKET):
            self._listen(path, allow)

    @property
    def is_held(self) -> bool:
        """Return whether no step may be computed."""
        return self._num_left == 0

    def set(self, order: Allow) -> None:
        """Apply `order` to the following steps."""
        self._num_left = order.num_steps
        self._shortest = max(self._always, order.shortest)
        order.obeyed()

    def stepped(self) -> None:
        """Count a step that gave some sequence a token."""
        if self._num_left:
            self._num_left -= 1

    def fill(self, elapsed: float) -> None:
        """Extend a step that took `elapsed` seconds to its minimum duration."""
        if elapsed < self._shortest:
            time.sleep(self._shortest - elapsed)

    def _listen(self, path: str, allow: Callable[[Allow], None]) -> None:
        with ExitStack() as stack:
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(path)
            lines = stack.enter_context(connection.makefile("rb"))
            allow(_order(lines.readline(), connection))
            opened = stack.pop_all()

        def pass_on() -> None:
            with opened, suppress(ConnectionError):
                for line in lines:
                    allow(_order(line, connection))
            allow(Allow(None, lambda: None))

        Thread(target=pass_on, name="pace", daemon=True).start()


def _order(line: bytes, connection: socket.socket) -> Allow:
    def obeyed() -> None:
        with suppress(OSError):  # the other side is gone, which `pass_on` notices
            connection.sendall(b"\n")

    num_steps, per_second, *_ = *line.split(), b"", b""
    shortest = 1 / float(per_second) if per_second else 0.0
    return Allow(None if num_steps in (FREE, b"") else int(num_steps), obeyed, shortest)
