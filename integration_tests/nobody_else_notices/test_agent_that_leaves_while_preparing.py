"""An agent that ends while a thread of it tokenises a long text."""

import shutil
from pathlib import Path

import pytest

from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import MODEL, Fleet
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed
from integration_tests.nobody_else_notices.preparing import (
    ask_long,
    thread_seconds,
    until_preparing,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

NAME = "leaving"
OVERWRITTEN_WITH = "165"
"""The C library fills freed memory with this byte, so that no use of it goes unnoticed."""


async def test_it_frees_the_model_after_the_thread_has_ended(
    long_fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_PERTURB_", OVERWRITTEN_WITH)
    path = tmp_path / f"{NAME}.gguf"
    shutil.copyfile(MODEL, path)

    async def attack(seen: Bystander) -> None:
        agent = await long_fleet.start_agent(
            name=NAME, model=path, context_size=LONG_CONTEXT, drain_timeout="10ms"
        )
        before = thread_seconds(agent)
        long = ask_long(long_fleet, 500_000, model=NAME)
        await until_preparing(agent, before)

        assert await agent.terminate() == 0
        await long_fleet.until_num_requests(1, "queued")
        long.cancel()
        await long_fleet.until_num_requests(0, "queued")

    await unnoticed(long_fleet, attack)
