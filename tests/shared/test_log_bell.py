"""A loop wakes once for what was logged on other threads."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from arriero.shared.log_bell import LogBell
from arriero.shared.reports.log_tail import LogTail


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    tail = LogTail(logging.LogRecord.getMessage)
    root = logging.getLogger()
    root.addHandler(tail)
    yield root
    root.removeHandler(tail)


async def test_many_lines_wake_the_loop_once(logger: logging.Logger) -> None:
    wakes: list[None] = []
    bell = LogBell(lambda: wakes.append(None))

    def log() -> None:
        for _ in range(100):
            logger.warning("a line")

    log()
    await asyncio.sleep(0)
    assert len(wakes) == 1
    await asyncio.to_thread(log)
    await asyncio.sleep(0)
    assert len(wakes) >= 2
    bell.close()
    num_wakes = len(wakes)
    log()
    await asyncio.sleep(0)
    assert len(wakes) == num_wakes


async def test_nobody_is_woken_who_does_not_want_it(logger: logging.Logger) -> None:
    wakes: list[None] = []
    is_heard = False
    bell = LogBell(lambda: wakes.append(None), lambda: is_heard)
    logger.warning("a line")
    await asyncio.sleep(0)
    assert wakes == []
    is_heard = True
    logger.warning("a line")
    await asyncio.sleep(0)
    assert len(wakes) == 1
    bell.close()
