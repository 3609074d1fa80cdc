"""The process that runs the engine; the agent's supervisor starts it and sends it orders.

The process ends at once when its supervisor is gone. Nothing else could stop the process, and the
next agent on this host needs its memory.
"""

import asyncio
import logging
import select
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import FileIO
from typing import assert_never

from ...shared import lifecycle, log
from ...shared.lifecycle import Shutdown
from .. import child
from ..settings import AgentSettings
from .stall_watch import StallWatch
from .supervisor_protocol import (
    ORDERS,
    REPORTS,
    Alive,
    Begin,
    Change,
    Dial,
    Failed,
    FitFound,
    Logged,
    Order,
    Refresh,
    Report,
    ReportStatus,
    SecretGiven,
    ShareThreads,
    Stop,
    SupervisorChannel,
)

logger = logging.getLogger(__name__)

EXIT_ORPHANED = 72

Serve = Callable[[AgentSettings, Shutdown, SupervisorChannel], Awaitable[None]]


async def _serve(settings: AgentSettings, shutdown: Shutdown, channel: SupervisorChannel) -> None:
    # Late: the engine's libraries take a while to load, and a forwarder may not have them.
    if settings.upstream is not None:
        with lifecycle.loading():
            from ..upstream_daemon import main as forward
        await forward(settings, shutdown, channel)
        return
    with lifecycle.loading():
        from ..daemon import main
        from ..engine.llama.log import on_abort

    on_abort(partial(_last_words, channel))
    await main(settings, shutdown, channel)


def _last_words(channel: SupervisorChannel, line: str) -> None:
    """Report and log why native code aborts. The process ends when this function returns."""
    logger.critical("llama.cpp aborts the process: %s", line)
    channel.report(Failed(reason=line))
    log.flush()


def main(serve: Serve = _serve) -> int:
    """Serve as the supervisor orders. Returns the exit code."""
    orders = child.orders()
    report = _reporter(child.reports())
    first = orders.readline()
    if not first:
        return EXIT_ORPHANED
    begin = ORDERS.decode(first)
    if not isinstance(begin, Begin):
        raise ValueError(f"the first order must be `begin`, not `{begin.type}`")
    settings = begin.settings
    log.setup(settings.log_format, settings.log_level)
    log.restore(begin.log)

    async def obeying(shutdown: Shutdown) -> None:
        channel = SupervisorChannel(begin, report)
        _listen(orders, _obey(channel, shutdown))
        try:
            with _beating(channel, StallWatch(settings.step_timeout).pause):
                await serve(settings, shutdown, channel)
        except Exception as error:
            report(Failed(reason="; ".join(lifecycle.reasons(error))))
            raise

    return lifecycle.run(settings.program, obeying)


def _reporter(reports: FileIO) -> Callable[[Report], None]:
    room = select.poll()
    room.register(reports, select.POLLOUT)

    def report(report: Report) -> None:
        if isinstance(report, Alive) and not room.poll(0):
            return  # the supervisor stands still, for which this process must not wait
        with suppress(BrokenPipeError):  # the end of the orders will say so too
            reports.write(REPORTS.encode(report))

    return report


@contextmanager
def _beating(channel: SupervisorChannel, pause: float) -> Iterator[None]:
    """Inside the block, report every `pause` seconds which step the engine computes.

    Reports are sent from the event loop.
    """
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []

    def beat() -> None:
        channel.report(Alive(step=channel.step()))
        timers[:] = [loop.call_later(pause, beat)]

    beat()
    try:
        yield
    finally:
        timers[0].cancel()


def _obey(channel: SupervisorChannel, shutdown: Shutdown) -> Callable[[Order], None]:
    def obey(order: Order) -> None:
        match order:
            case Dial():
                channel.dials.put_nowait(order)
            case ReportStatus() | Change() | ShareThreads():
                channel.orders.put_nowait(order)
            case SecretGiven(balancer=balancer, secret=secret):
                channel.secrets.learn(balancer, secret)
            case Logged(lines=lines):
                log.append(lines)
            case FitFound(read=read):
                channel.on_fit_found(read)
            case Stop(drain_timeout=drain_timeout):
                channel.drain_timeout = drain_timeout
                shutdown.request("the supervisor asks for it")
            case Refresh():
                shutdown.refresh("the supervisor asks for it")
            case Begin():
                raise ValueError("`begin` came twice")
            case _:
                assert_never(order)

    return obey


def _listen(orders: FileIO, obey: Callable[[Order], None]) -> None:
    """Pass every order to `obey` on the event loop's thread, and then end the process."""
    loop = asyncio.get_running_loop()

    def pass_on(line: bytes) -> None:
        with suppress(RuntimeError):  # the loop is closed: the process is ending anyhow
            loop.call_soon_threadsafe(obey, ORDERS.decode(line))

    child.obey(orders, pass_on, exit_code=EXIT_ORPHANED)


if __name__ == "__main__":
    sys.exit(main())
