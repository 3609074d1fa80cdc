import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from arriero.agent.generation.port import QueryId
from arriero.agent.upstream.client import Client
from arriero.agent.upstream.protocol.address import ApiAddress
from arriero.agent.upstream.protocol.bodies import Server
from arriero.agent.upstream.queries import UpstreamQueries
from arriero.shared.queries import Declined, Embed, Embedded, Query, Rank, Result, Tokenize
from tests.agent.fakes import Expected
from tests.agent.upstream.protocol.servers import VLLM_SERVER
from tests.agent.upstream.scripted import Scripted

T = QueryId(1)


class Side:
    def __init__(self, scripted: Scripted, client: Client, group: asyncio.TaskGroup) -> None:
        self.scripted = scripted
        self.server: Server | None = VLLM_SERVER
        self.replies: asyncio.Queue[Result] = Expected()
        self.queries = UpstreamQueries(client, group, lambda: self.server)

    async def answer(self, query: Query) -> Result:
        self.queries.answer(T, query, self.replies.put_nowait)
        return await self.replies.get()

    async def code(self, query: Query) -> str:
        result = await self.answer(query)
        assert isinstance(result, Declined)
        return result.error.code


@asynccontextmanager
async def side() -> AsyncIterator[Side]:
    async with (
        Scripted().serving() as scripted,
        Client(ApiAddress.of(scripted.url)) as client,
        asyncio.TaskGroup() as group,
    ):
        yield Side(scripted, client, group)


async def test_queries_go_below_the_api_or_to_the_root() -> None:
    async with side() as it:
        assert isinstance(await it.answer(Embed(inputs=("a",))), Embedded)
        it.scripted.documents["/tokenize"] = {"tokens": [1]}
        await it.answer(Tokenize(text="a"))
        assert [path for path, _ in it.scripted.seen] == ["/v1/embeddings", "/tokenize"]


async def test_what_goes_wrong_declines_the_query() -> None:
    async with side() as it:
        assert await it.code(Rank(query="a", documents=("b",))) == "not_supported"
        assert await it.code(Tokenize(text="a")) == "shutting_down"  # of another shape
        it.scripted.status = 400
        assert await it.code(Tokenize(text="a")) == "invalid_request"
        it.server = None
        assert await it.code(Tokenize(text="a")) == "shutting_down"


async def test_a_query_that_is_withdrawn_is_not_answered() -> None:
    async with side() as it:
        it.queries.answer(T, Embed(inputs=("a",)), it.replies.put_nowait)
        it.queries.withdraw(T)
        it.queries.withdraw(T)
        assert await it.code(Rank(query="a", documents=("b",))) == "not_supported"
        assert it.replies.empty()


async def test_a_mistake_of_ours_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with side() as it:
        it.server = 5  # type: ignore[assignment]
        assert await it.code(Tokenize(text="a")) == "internal_error"
        assert "a query could not be answered" in caplog.text
