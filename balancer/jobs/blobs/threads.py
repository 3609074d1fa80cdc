"""Threads of their own for what is done with bytes: a silent storage holds up no other work.

asyncio's threads serve the whole process, name resolution among it, and they are few.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

NUM = 16
"""They wait for disks and networks. What comes when all are taken waits for one of them."""

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = ThreadPoolExecutor(NUM, "files")


async def on_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What `function` returns or raises. It goes on where its caller is cancelled."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREADS, partial(function, *args, **kwargs))
