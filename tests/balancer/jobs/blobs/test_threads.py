import asyncio
import threading

import pytest

from arriero.balancer.jobs.blobs.threads import NUM, on_thread
from tests.agent.fakes import soon


async def test_what_hangs_holds_up_nothing_but_its_kind() -> None:
    """A storage that is silent: all threads wait for it, and one more call for a thread."""
    may_go_on = threading.Event()
    calls = [asyncio.create_task(on_thread(may_go_on.wait)) for _ in range(NUM)]
    late = asyncio.create_task(on_thread(threading.current_thread))
    try:
        assert await soon(asyncio.to_thread(lambda: "other work")) == "other work"
        assert not late.done()
    finally:
        may_go_on.set()
    assert await soon(asyncio.gather(*calls)) == [True] * NUM
    assert (await soon(late)).name.startswith("files")


async def test_what_goes_wrong_there_is_raised_here() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await on_thread(int, "seven")
    assert await on_thread(int, "11", base=2) == 3
