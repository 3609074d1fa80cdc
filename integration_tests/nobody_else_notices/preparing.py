"""Requests whose texts take long to tokenise, and when an agent is busy with them."""

import asyncio
import json
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

from integration_tests.computing import seconds_of
from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import Daemon, Fleet, until

MUCH = 0.2
"""Seconds of computing time that nothing but a long text costs an idle thread."""

IDLE = 0.05
"""Maximum seconds of a thread that has prepared no text yet."""


def ask_long(fleet: Fleet, num_words: int, **fields: Any) -> asyncio.Task[bytes]:
    """A prompt of so many words. With a window that moves on it is not refused for its length."""
    body = {"prompt": "a slot " * num_words, "n_discard": LONG_CONTEXT // 2, "max_tokens": 1}
    return asyncio.create_task(_post(fleet, body | fields))


async def _post(fleet: Fleet, body: dict[str, Any]) -> bytes:
    data, headers = BytesIO(json.dumps(body).encode()), {"Content-Type": "application/json"}
    url = f"{fleet.inference}/api/v1/generate"
    async with fleet.http.post(url, data=data, headers=headers) as response:
        return await response.read()


def thread_seconds(agent: Daemon) -> dict[str, float]:
    """The computing time so far of each thread of an agent's engine process."""
    tasks = Path(f"/proc/{agent.engine_pids[-1]}/task")
    return {task.name: seconds_of(task) for task in tasks.iterdir()}


def busy(seconds: dict[str, float]) -> set[str]:
    """The threads that have computed something: the engine's, and the event loop's."""
    return {thread for thread, used in seconds.items() if used > IDLE}


async def until_preparing(
    agent: Daemon, before: dict[str, float], others: Iterable[str] | None = None
) -> None:
    """Waits until a thread computes that is none of the `others`: by default, that was idle."""
    busy_with_others = busy(before) if others is None else set(others)

    async def is_preparing() -> bool:
        now = thread_seconds(agent)
        return any(
            now[thread] - before.get(thread, 0.0) > MUCH for thread in now.keys() - busy_with_others
        )

    await until(is_preparing)
