"""`arriero.client` against the real daemons."""

import ast
import asyncio
import doctest
import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import redirect_stdout
from io import StringIO
from itertools import chain
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio

from arriero.balancer.management.serializers import CLOCKS
from arriero.client import (
    Answer,
    Client,
    Done,
    RequestFailed,
    Retries,
    Socket,
    Token,
    Unreachable,
    batches,
    management,
)
from arriero.client import client as client_module
from integration_tests.corpus import UNENDING
from integration_tests.daemons import Fleet, until

NEVER = Retries(limit=0)

in_session = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def client(shared_fleet: Fleet) -> AsyncIterator[Client]:
    urls = {"url": shared_fleet.inference, "management": shared_fleet.management}
    async with Client(**urls, retries=NEVER) as client:
        yield client
    await shared_fleet.until_idle()


async def busy(client: Client) -> int:
    return sum(agent["slots"]["busy"] for agent in await client.management.agents())


@in_session
async def test_inference(client: Client) -> None:
    whole = await client.generate(prompt="The balancer", max_tokens=8, temperature=0)
    assert (whole.finish_reason, whole.usage.completion_tokens) == ("length", 8)
    async with client.stream(prompt="The balancer", max_tokens=8, temperature=0) as events:
        streamed = await events.answer()
    assert streamed.id
    assert (streamed.text, streamed.usage.completion_tokens) == (whole.text, 8)
    async with client.socket() as socket:
        await socket.ping()
        answers = [
            socket.generate(prompt="The balancer", max_tokens=8, temperature=0) for _ in range(6)
        ]
        assert {answer.text for answer in await asyncio.gather(*answers)} == {whole.text}

    with pytest.raises(RequestFailed, match="max_tokens") as raised:
        await client.generate(prompt="x", max_tokens=0)
    assert (raised.value.code, raised.value.status) == ("invalid_request", 400)
    with pytest.raises(RequestFailed, match="temperature"):
        async with client.stream(prompt="x", temperature=-1):
            pass
    async with client.socket() as socket:
        with pytest.raises(RequestFailed, match="min_p") as raised:
            await socket.generate(prompt="x", min_p=2)
        assert raised.value.code == "invalid_request"


@in_session
async def test_leaving_a_stream_cancels_it(client: Client, shared_fleet: Fleet) -> None:
    async with client.stream(**UNENDING) as events:
        assert isinstance(await anext(events), Token)
        assert await busy(client) == 1
    await shared_fleet.until_idle()
    async with client.socket() as socket:
        stream = socket.stream(**UNENDING)
        assert isinstance(await anext(stream), Token)
        await stream.aclose()
        await shared_fleet.until_idle()
        await socket.ping()


@in_session
async def test_batches(client: Client) -> None:
    requests: Any = [{"prompt": f"{n}:", "max_tokens": 3} for n in range(30)]
    requests[7] = {"prompt": "x", "max_tokens": -1}
    results = [result async for result in client.batch(iter(requests))]
    assert sorted(result.index for result in results) == list(range(30))
    [failed] = [result for result in results if result.error]
    assert failed.index == 7
    assert isinstance(failed.error, RequestFailed)


@in_session
async def test_management(client: Client) -> None:

    no_times = dict.fromkeys(CLOCKS["agents"], 0)

    async def is_the_same() -> bool:
        """Figures come once a second, which may be in between."""
        (listed,) = await client.management.agents()
        shown = await client.management.agent(listed["id"])
        return shown | no_times == listed | no_times

    await until(is_the_same)
    events = client.management.events()
    first = await anext(events)
    assert (first.name, len(first.data["agents"])) == ("snapshot", 1)
    async with client.stream(**UNENDING) as stream:
        await anext(stream)
        [request] = await client.management.requests(state="running")
        assert request["id"] == stream.id
        async for event in events:
            if event.name == "delta" and any(
                each["id"] == stream.id for each in event.data.get("requests", ())
            ):
                break
        await client.management.cancel(stream.id)
        rest = [event async for event in stream]
    assert isinstance(rest[-1], Done)
    assert rest[-1].finish_reason == "cancelled"
    await events.aclose()


async def test_nobody_there() -> None:
    async with Client("http://127.0.0.1:9", retries=NEVER) as client:
        with pytest.raises(Unreachable, match="cannot connect"):
            await client.generate(prompt="x")
        with pytest.raises(Unreachable):
            async with client.stream(prompt="x"):
                pass
        with pytest.raises(Unreachable):
            async with client.socket():
                pass


async def test_what_was_refused_is_tried_again(fleet: Fleet) -> None:
    """A queue without room; the agent comes while the client waits."""
    await fleet.start_balancer(max_buffered_requests=0)
    retries = Retries(limit=1000, first_pause=0.4, last_pause=0.4)
    async with Client(fleet.inference, management=fleet.management, retries=retries) as client:
        asking = asyncio.create_task(client.generate(prompt="The", max_tokens=2))
        await until(lambda: was_refused(fleet))
        await fleet.start_agent()
        answer = await asking
    assert isinstance(answer, Answer)
    assert answer.usage.completion_tokens == 2


async def was_refused(fleet: Fleet) -> bool:
    async with fleet.http.get(f"{fleet.management}/metrics") as response:
        return 'arriero_requests_total{code="queue_full"}' in await response.text()


def examples() -> Iterator[list[doctest.Example]]:
    finder = doctest.DocTestFinder()
    modules: tuple[ModuleType, ...] = (
        client_module,
        batches,
        management,
        inspect.getmodule(Socket),
    )
    for module in modules:
        for found in finder.find(module):
            if found.examples:
                yield found.examples


@in_session
async def test_examples_of_docstrings(client: Client, shared_fleet: Fleet) -> None:
    def local(**more: Any) -> Client:
        return Client(shared_fleet.inference, management=shared_fleet.management, **more)

    found = list(examples())
    assert len(found) >= 4
    names: dict[str, Any] = {"Client": local, "asyncio": asyncio}
    for example in chain.from_iterable(found):
        printed = StringIO()
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(example.source, "<example>", "exec", flags=flags)
        with redirect_stdout(printed):
            coroutine = eval(code, names)
            if coroutine is not None:
                await coroutine
        assert printed.getvalue() == example.want
