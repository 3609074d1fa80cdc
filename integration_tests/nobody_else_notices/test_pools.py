"""A key that fills every store and queue of what outlives a request, beside one that uses them.

What the second key made before stays, what it runs goes on, and there is room for what it makes.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

import aiohttp
import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from arriero.balancer.access.access_key import new_key
from arriero.client import Client
from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import DEADLINE, Fleet, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = "arriero-demo"
ADMIN = new_key(b"a" * 32)
STEADY = 25
"""Steps a second: what runs in the background outlasts the tests."""

RESPONSES_LIMIT = 2**20
FILES_LIMIT = 2**20


@dataclass
class Neighbours:
    """A fleet with two keys; `good` has all that can be stored, and a response that runs."""

    fleet: Fleet
    good: AsyncOpenAI
    bad: AsyncOpenAI
    running: str = ""
    answered: str = ""
    conversation: str = ""
    file: str = ""

    async def make(self) -> None:
        file = await self.good.files.create(file=("in.jsonl", lines(3, 5)), purpose="batch")
        self.file = file.id
        self.conversation = (await self.good.conversations.create(items=[said("hi")])).id
        self.answered = (await response(self.good)).id
        self.running = (await response(self.good, background=True, max_output_tokens=9000)).id

    async def check(self) -> None:
        """What `good` has is there, what it runs goes on, and it may have more."""
        assert (await self.good.responses.retrieve(self.running)).status == "in_progress"
        await self.good.responses.retrieve(self.answered)
        await self.good.conversations.retrieve(self.conversation)
        await self.good.files.retrieve(self.file)
        more = await response(self.good, background=True)
        await self.good.responses.cancel(more.id)
        again = await self.good.conversations.create(items=[said("hi")])
        await self.good.conversations.delete(again.id)
        file = await self.good.files.create(file=("in.jsonl", b"x" * 10_000), purpose="batch")
        await self.good.files.delete(file.id)
        followed = await response(self.good, previous_response_id=self.answered)
        await self.good.responses.delete(followed.id)


def said(text: str) -> openai.types.responses.EasyInputMessageParam:
    return {"type": "message", "role": "user", "content": text}


async def response(client: AsyncOpenAI, **more: object) -> openai.types.responses.Response:
    fields: dict[str, object] = {"max_output_tokens": 5, "extra_body": {"ignore_eos": True}}
    made: openai.types.responses.Response = await client.responses.create(
        **{"model": MODEL, "input": "hi", **fields, **more}  # type: ignore[call-overload]
    )
    return made


def lines(num: int, num_tokens: int) -> bytes:
    body = {"model": MODEL, "prompt": "x", "max_tokens": num_tokens, "ignore_eos": True}
    each = {"method": "POST", "url": "/v1/completions", "body": body}
    return b"".join(json.dumps({"custom_id": str(n), **each}).encode() + b"\n" for n in range(num))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def neighbours(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Neighbours]:
    folder = tmp_path_factory.mktemp("neighbours")
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        (folder / "admin.key").write_text(ADMIN)
        await fleet.start_balancer(
            admin_key_file=folder / "admin.key",
            state=f"sqlite:///{folder}/state.db",
            responses_limit=RESPONSES_LIMIT,
            files_limit=FILES_LIMIT,
        )
        async with Client(management=fleet.management, key=ADMIN) as client:
            names = {"host": "agent", "good": "inference", "bad": "inference"}
            made = {
                name: (await client.management.create_key(name, role))["key"]
                for name, role in names.items()
            }
        (folder / "agent.key").write_text(made["host"])
        agent = await fleet.start_agent(
            key_file=folder / "agent.key", context_size=LONG_CONTEXT, slots=4
        )
        good, bad = [
            await stack.enter_async_context(
                AsyncOpenAI(
                    timeout=DEADLINE,
                    base_url=f"{fleet.inference}/v1",
                    api_key=made[name],
                    max_retries=num_retries,
                )
            )
            # A slow disk may make the store answer late; what is full stays full.
            for name, num_retries in (("good", 3), ("bad", 0))
        ]
        found = Neighbours(fleet, good, bad)
        await agent.pace.slow(STEADY)
        await found.make()
        yield found
        await agent.pace.let_go()


async def test_requests_with_an_idempotency_key(neighbours: Neighbours) -> None:
    """Their events take more than there is, while another key's response waits for a slot."""

    async def ask(number: int) -> None:
        await neighbours.bad.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "hi"}],
            max_tokens=12,
            logprobs=True,
            top_logprobs=20,
            extra_headers={"Idempotency-Key": str(number)},
            extra_body={"ignore_eos": True},
        )

    asking = [asyncio.create_task(ask(number)) for number in range(24)]
    await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    waiting = await response(neighbours.good, background=True, service_tier="flex")
    await asyncio.gather(*asking)
    assert (await neighbours.good.responses.retrieve(waiting.id)).status != "cancelled"
    await neighbours.check()


async def test_responses_in_the_background(neighbours: Neighbours) -> None:
    """Each holds a body of a fifth of what the store has; those that find no room are refused."""
    accepted, refused = [], 0
    for _ in range(8):
        try:
            more = {"background": True, "user": "x" * (RESPONSES_LIMIT // 5)}
            accepted.append((await response(neighbours.bad, max_output_tokens=2000, **more)).id)
        except openai.InternalServerError as error:
            assert error.status_code == 503 and "--responses-limit" in str(error)
            refused += 1
    assert accepted and refused
    await neighbours.check()
    for id in accepted:
        assert (await neighbours.bad.responses.cancel(id)).status == "cancelled"
    again = await response(neighbours.bad, background=True)
    await neighbours.bad.responses.cancel(again.id)


async def test_conversations(neighbours: Neighbours) -> None:
    large = "x" * (RESPONSES_LIMIT // 4)
    ids = []
    for _ in range(9):
        ids.append((await neighbours.bad.conversations.create(items=[said(large)])).id)
    await neighbours.check()
    assert (await neighbours.bad.conversations.retrieve(ids[-1])).id == ids[-1]
    with pytest.raises(openai.NotFoundError):
        await neighbours.bad.conversations.retrieve(ids[0])
    with pytest.raises(openai.APIStatusError) as error:
        await neighbours.bad.conversations.create(items=[said("x" * (RESPONSES_LIMIT + 1))])
    assert error.value.status_code == 413


async def test_uploads_that_do_not_end(neighbours: Neighbours) -> None:
    url, key = f"{neighbours.fleet.inference}/v1/files", neighbours.bad.api_key
    may_end = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"x"
        await may_end.wait()

    async def upload() -> int:
        form = aiohttp.FormData({"purpose": "batch"})
        form.add_field("file", slow(), filename="slow.jsonl")
        headers = {"Authorization": f"Bearer {key}"}
        async with neighbours.fleet.http.post(url, data=form, headers=headers) as answer:
            return answer.status

    uploads = [asyncio.create_task(upload()) for _ in range(16)]
    async with asyncio.timeout(DEADLINE):
        while sum(each.done() for each in uploads) < 8:
            await asyncio.wait(uploads, return_when=asyncio.FIRST_COMPLETED, timeout=0.1)
    await neighbours.check()
    may_end.set()
    statuses = await asyncio.gather(*uploads)
    assert sorted(set(statuses)) == [200, 503]
    async for file in neighbours.bad.files.list():
        await neighbours.bad.files.delete(file.id)


async def test_files(neighbours: Neighbours) -> None:
    with pytest.raises(openai.APIStatusError) as error:
        for data in repeated(b"x" * (FILES_LIMIT // 5)):
            await neighbours.bad.files.create(file=("in.jsonl", data), purpose="batch")
    assert error.value.status_code == 413 and "--files-limit" in str(error.value)
    await neighbours.check()
    async for file in neighbours.bad.files.list():
        await neighbours.bad.files.delete(file.id)


def repeated(data: bytes, most: int = 100) -> Iterator[bytes]:
    return (data for _ in range(most))


async def test_batches(neighbours: Neighbours) -> None:
    """Twenty of one key, which would all take a place, leave another key's theirs."""
    bad, good = neighbours.bad, neighbours.good
    file = await bad.files.create(file=("in.jsonl", lines(80, 8)), purpose="batch")
    batches = [
        await bad.batches.create(
            input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"
        )
        for _ in range(20)
    ]
    mine = await good.batches.create(
        input_file_id=neighbours.file, endpoint="/v1/completions", completion_window="24h"
    )

    async def is_completed() -> bool:
        return (await good.batches.retrieve(mine.id)).status == "completed"

    await until(is_completed)
    mine = await good.batches.retrieve(mine.id)
    assert mine.request_counts is not None and mine.request_counts.completed == 3
    others = [(await bad.batches.retrieve(each.id)).status for each in batches]
    assert any(status == "validating" for status in others), "some still wait for their turn"
    await neighbours.check()
    for each in batches:
        with suppress(openai.ConflictError):  # it may have ended
            await bad.batches.cancel(each.id)
