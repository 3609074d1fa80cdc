"""A fake balancer in a thread, since a command has an event loop of its own."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tests.client.fakes import FakeServer, serving
from tests.waiting import HANGS


@pytest.fixture
def balancer(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """Both ports in one; commands find it by the environment."""
    started: list[FakeServer] = []
    is_up, loop = threading.Event(), asyncio.new_event_loop()

    async def serve(stop: asyncio.Event) -> None:
        async with serving() as server:
            started.append(server)
            is_up.set()
            await stop.wait()

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve(stop)))
    thread.start()
    assert is_up.wait(10)
    monkeypatch.setenv("ARRIERO_URL", started[0].url)
    monkeypatch.setenv("ARRIERO_MANAGEMENT", started[0].url)
    monkeypatch.setenv("COLUMNS", "200")
    yield started[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(HANGS)
    loop.close()
