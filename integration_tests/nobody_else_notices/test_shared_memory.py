"""Whoever takes all the memory that it gets leaves others theirs.

With small bounds, so that little fills them: 64 MiB for requests, 32 for bodies, 16 for answers.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio

from arriero.balancer.access.access_key import new_key
from integration_tests.daemons import Fleet, until
from integration_tests.nobody_else_notices import greedy
from integration_tests.nobody_else_notices.greedy import FULL, MUCH, generate, post

ADMIN = new_key(b"a" * 32)
MiB = 2**20
LONG = 8_000
NUM_TOKENS = 6_000
ALONE = 5
"""Requests of the one who wants little while others take all they get."""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Shared:
    fleet: Fleet
    greedy: str
    modest: str

    async def used(self, pool: str) -> float:
        return await self.metric(f'arriero_pool_used{{pool="{pool}"}}')

    async def refused(self, pool: str) -> float:
        name = f'arriero_pool_refusals_total{{pool="{pool}",why='
        return await self.metric(f'{name}"share"}}') + await self.metric(f'{name}"full"}}')

    async def metric(self, name: str) -> float:
        headers = {"Authorization": f"Bearer {ADMIN}"}
        url = f"{self.fleet.management}/metrics"
        async with self.fleet.http.get(url, headers=headers) as response:
            lines = (await response.text()).splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))

    async def is_served(self) -> None:
        """The one who wants little gets an answer each time, to a prompt of some length too."""
        for prompt in ["hello", "x" * LONG] * ALONE:
            status, answer = await self.ask(self.modest, generate(prompt))
            assert status == 200, answer

    async def ask(self, key: str, body: bytes, path: str = "/api/v1/generate") -> tuple[int, bytes]:
        return await post(self.fleet, path, key, body)

    async def until_empty(self, *pools: str) -> None:
        async def is_empty() -> bool:
            return not any([await self.used(each) for each in pools])

        await until(is_empty)

    async def until_refused(self, pool: str, before: float) -> None:
        async def is_refused() -> bool:
            return await self.refused(pool) > before

        await until(is_refused)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shared]:
    file = tmp_path_factory.mktemp("keys") / "admin.key"
    file.write_text(ADMIN)
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(admin_key_file=file, request_memory="64MiB")
        agent = await greedy.make_key(fleet, ADMIN, "rack", "agent")
        keys = [await greedy.make_key(fleet, ADMIN, name) for name in ("greedy", "modest")]
        async with greedy.agents(fleet, agent, most=NUM_TOKENS):
            yield Shared(fleet, *keys)


Attack = Callable[[], Awaitable[object]]


async def beside(shared: Shared, pool: str, attack: Attack, num: int) -> None:
    """`num` attacks, and the modest caller once the pool has refused one of them."""
    before = await shared.refused(pool)
    tasks = [asyncio.create_task(_ignored(attack())) for _ in range(num)]
    try:
        await shared.until_refused(pool, before)
        await shared.is_served()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await shared.until_empty("bodies", "requests", "answers")
    await shared.is_served()


async def _ignored(attack: Awaitable[object]) -> None:
    await attack


async def test_sockets_without_a_key(shared: Shared) -> None:
    await beside(shared, "bodies", lambda: greedy.unfinished_message(shared.fleet, 30 * MiB), 8)


async def test_bodies_that_drip(shared: Shared) -> None:
    body = generate("x" * (7 * MiB))

    def attack() -> Awaitable[object]:
        return post(shared.fleet, "/api/v1/generate", shared.greedy, body, drips=True)

    await beside(shared, "bodies", attack, 8)


@pytest.mark.parametrize("path", ["/api/v1/generate", "/v1/completions"])
async def test_requests_that_wait(shared: Shared, path: str) -> None:
    """Token ids take five times what their body takes."""
    body = generate(greedy.token_ids(2 * MiB), FULL)

    async def attack() -> object:
        return await shared.ask(shared.greedy, body, path)

    await beside(shared, "requests", attack, 12)


async def test_answers_that_are_kept_until_they_are_whole(shared: Shared) -> None:
    body = generate(MUCH, max_tokens=NUM_TOKENS, logprobs=True, top_logprobs=20)

    await beside(shared, "answers", lambda: shared.ask(shared.greedy, body), 3)
    status, answer = await shared.ask(shared.greedy, body)
    assert (status, b"request_too_large" in answer) == (413, True), "it would not fit alone"


async def test_what_one_caller_may_never_have_is_too_large(shared: Shared) -> None:
    status, answer = await shared.ask(shared.modest, generate(greedy.token_ids(7 * MiB), FULL))
    assert (status, b"request_too_large" in answer) == (413, True)
