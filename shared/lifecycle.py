"""A daemon's life: an event loop, an orderly stop on the first signal, and an exit code.

SIGHUP does not stop the daemon: it reopens its log, and reads certificates and key files again.

| exit code | when |
| --- | --- |
| 0 | it stopped because it was asked to |
| 1 | it could not start; one line on stderr says why |
| 70 | a fault in Arriero; the log has the traceback |
| 130, 143 | a second SIGINT or SIGTERM stopped it at once |
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from . import log
from .log import key_values
from .printable import printable

logger = logging.getLogger(__name__)

EXIT_STARTUP = 1
EXIT_INTERNAL = 70

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StartupError(Exception):
    """The daemon cannot start. The message is one line: the fault, and what to do about it."""


class Shutdown:
    """A request to stop the daemon; `requested` is set until the request is withdrawn.

    `refresh` asks the daemon to read its files again.
    """

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self._refreshes: list[Callable[[], None]] = []

    def on_refresh(self, read: Callable[[], None]) -> None:
        """Call `read` on the event loop at each `refresh`."""
        self._refreshes.append(read)

    def refresh(self, reason: str) -> None:
        """Reopen the log, so that a rotated file can be removed; then reread all other files."""
        log.reopen()
        logger.info("the files named in the settings are read again: %s", reason)
        for read in self._refreshes:
            read()

    def request(self, reason: str) -> None:
        """Request an orderly stop; later calls change nothing."""
        if not self.requested.is_set():
            logger.info("stopping: %s", reason)
            self.requested.set()

    def withdraw(self) -> None:
        """Cancel the request to stop."""
        logger.info("the request to stop is withdrawn; the daemon continues")
        self.requested.clear()


def run(program: str, main: Callable[[Shutdown], Awaitable[int | None]]) -> int:
    """Run `main` until it returns. Returns the exit code: the result of `main`, or 0.

    The first SIGTERM or SIGINT sets `shutdown.requested`: `main` should finish its work and return.
    A second signal ends the process at once. The log is flushed before this returns. SIGHUP calls
    `shutdown.refresh`; before the event loop runs, it does nothing.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_supervise(main)) or 0
    except KeyboardInterrupt:
        return _signal_code(signal.SIGINT)
    except Exception as error:  # the process's outermost boundary: everything is logged
        return _report(program, error)
    finally:
        log.flush()


def ready(program: str, **facts: object) -> None:
    """Print on stdout that the daemon is ready, and its addresses: `ready balancer a=b …`."""
    sys.stdout.write(printable(" ".join(["ready", program, *key_values(facts)])) + "\n")
    sys.stdout.flush()


@contextmanager
def loading() -> Iterator[None]:
    """Turn garbage collection off during imports, and exempt the imported objects from it.

    The modules' objects stay until the end. Scanning them repeatedly took a tenth of a start.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def reasons(error: BaseException) -> list[str]:
    """Return one line for each error, including errors within exception groups."""
    return list(dict.fromkeys(map(_line, _leaves(error))))


async def _supervise(main: Callable[[Shutdown], Awaitable[int | None]]) -> int | None:
    shutdown = Shutdown()
    loop = asyncio.get_running_loop()

    def on_first(number: signal.Signals) -> None:
        for each in _SIGNALS:
            loop.remove_signal_handler(each)
            # Not the loop's handler: this one also works while the loop is stuck or closing.
            signal.signal(each, _exit_at_once)
        shutdown.request(f"{number.name}, once more to stop at once")

    for each in _SIGNALS:
        loop.add_signal_handler(each, on_first, each)
    loop.add_signal_handler(signal.SIGHUP, shutdown.refresh, "SIGHUP")
    return await main(shutdown)


def _exit_at_once(number: int, _frame: FrameType | None) -> None:
    os._exit(_signal_code(number))


def _signal_code(number: int) -> int:
    return 128 + number


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _report(program: str, error: Exception) -> int:
    if not all(isinstance(cause, StartupError) for cause in _leaves(error)):
        logger.critical("the daemon stops: unexpected error", exc_info=error)
        return EXIT_INTERNAL
    for message in reasons(error):
        log.say(f"{program}: {message}")
    return EXIT_STARTUP


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]


def _line(error: BaseException) -> str:
    if isinstance(error, StartupError):
        return str(error)
    return " ".join(f"{type(error).__name__}: {error}".split())
