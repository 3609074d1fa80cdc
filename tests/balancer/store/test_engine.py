"""What was confirmed is there after kill -9, whole; and what drivers say, in one line."""

import asyncio
import sys
from collections import Counter

import pytest
from sqlalchemy.exc import OperationalError

from arriero.balancer.store.engine import reached, sentence
from arriero.balancer.store.port import StoreAway
from arriero.balancer.store.records import MAX_ENDINGS, EndingFilter, StepRange
from arriero.balancer.store.sql import SqlStore
from arriero.balancer.store.url import StoreUrl, parse_store_url

from .committing import BATCH, document

ROUNDS = 3
URL = StoreUrl("postgresql", password="correct-horse", database="arriero")


async def killed_after(url: str, num_confirmed: int) -> int:
    """The last revision that a process confirmed before it was killed, a moment later."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.balancer.store.committing", url),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    lines = [await process.stdout.readline() for _ in range(num_confirmed)]
    process.kill()
    lines += (await process.stdout.read()).splitlines()
    await process.wait()
    assert all(lines), "it ended by itself"
    return int(lines[-1])


@pytest.mark.timeout(60)
async def test_what_was_confirmed_survives_kill_9(url: str) -> None:
    for number in range(ROUNDS):
        confirmed = await killed_after(url, 1 + 7 * number)
        store = SqlStore(parse_store_url(url))
        await store.open()
        saved = await store.load_desired_state()
        assert saved is not None
        assert saved.revision >= confirmed
        assert saved.document == document(saved.revision)
        kept, _ = await store.find_endings(EndingFilter(limit=MAX_ENDINGS))
        endings = Counter(each.id.split("-")[0] for each in kept)
        steps = Counter(each.document for each in await store.load_steps(StepRange(1, 0)))
        assert set(endings.values()) == set(steps.values()) == {BATCH}
        assert endings.keys() == steps.keys()
        assert max(map(int, endings)) >= confirmed
        await store.close()


def test_a_driver_is_quoted_in_one_line_and_without_the_password() -> None:
    error = OperationalError("SELECT 1", {}, Exception("no correct-horse here\nHINT: none"))
    assert sentence(error, URL) == "no *** here"
    wrapped = "<class 'asyncpg.exceptions.CannotConnectNowError'>: the system is starting up"
    assert sentence(Exception(wrapped), URL) == "the system is starting up"
    assert sentence(TimeoutError(), URL) == "TimeoutError"


def test_what_no_retry_mends_is_not_away() -> None:
    with pytest.raises(ZeroDivisionError), reached(URL):
        raise ZeroDivisionError
    with pytest.raises(StoreAway, match="refused"), reached(URL):
        raise ConnectionRefusedError("refused")
