"""Daemons whose standard error is a pipe that nobody reads."""

import asyncio
import fcntl
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import DEADLINE, Fleet
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed

PIPE_BYTES = 4096

NUM_REQUESTS = 40
"""Each makes both daemons log a line: far more than the pipes hold."""

TALKATIVE = {"prompt": "What is a slot?", "max_tokens": 1, "stream": False, "save_cache": True}
"""Its save does not fit into the cache, of which the agent logs a warning."""


@contextmanager
def unread_pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


async def generate(fleet: Fleet, number: int) -> str:
    body = TALKATIVE | {"cache_key": f"key {number}"}
    async with fleet.http.post(f"{fleet.inference}/api/v1/generate", json=body) as response:
        assert response.status == 200, await response.text()
        return str((await response.json())["finish_reason"])


async def was_full(reading: int) -> bool:
    """Whether more comes out than the pipe holds: its writer waited for room."""
    num_read = 0
    while num_read <= PIPE_BYTES:
        ready, _, _ = await asyncio.to_thread(select.select, [reading], [], [], DEADLINE)
        if not ready:
            return False
        num_read += len(os.read(reading, PIPE_BYTES))
    return True


async def test_a_log_that_nobody_reads_stops_no_daemon(fleet: Fleet, tmp_path: Path) -> None:
    with unread_pipe() as balancer_log, unread_pipe() as agent_log:
        await fleet.start_balancer(stderr=balancer_log[1])
        await fleet.start_agent(
            stderr=agent_log[1], context_size=LONG_CONTEXT, cache_dir=tmp_path, cache_limit=1
        )

        async def attack(seen: Bystander) -> None:
            reasons = [await generate(fleet, number) for number in range(NUM_REQUESTS)]
            assert set(reasons) == {"length"}

        await unnoticed(fleet, attack)
        for reading, _ in (balancer_log, agent_log):
            assert await was_full(reading), "it was not full"
