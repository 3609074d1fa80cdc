from json import dumps

import pytest

from arriero.client.answers import Done, Token
from arriero.client.client import Client
from arriero.client.errors import RequestFailed, Unreachable
from arriero.client.retries import NEVER, Retries
from tests.client.fakes import FakeServer, says, writes
from tests.client.test_answers import DONE

TOKEN = dumps({"event": "token", "id": "r", "kind": "content", "text": "x"}).encode() + b"\n"
END = dumps(DONE).encode() + b"\n"
ERROR = {"code": "agent_lost", "message": "gone", "retryable": True}
FAILED = dumps({"event": "error", "id": "r", "error": ERROR}).encode() + b"\n"
NEW = b'{"event": "brand_new"}\n\n'
QUICK = Retries(limit=3, first_pause=0.001, last_pause=0.001)


async def test_events_one_after_the_other(server: FakeServer) -> None:
    server.will(writes(TOKEN[:9], TOKEN[9:] + NEW + TOKEN, END))
    async with Client(server.url, retries=NEVER) as client, client.stream(prompt="p") as stream:
        assert stream.id == "r1"
        events = [event async for event in stream]
        assert [event async for event in stream] == []
    assert [type(event) for event in events] == [Token, Token, Done]


async def test_a_stream_that_waits_is_to_say_so_soon(server: FakeServer) -> None:
    server.will(writes(TOKEN, END))
    async with Client(server.url, retries=NEVER) as client, client.stream(prompt="p") as stream:
        await stream.answer()
    assert server.headers[0]["Prefer"] == "wait=1"


async def test_a_whole_answer(server: FakeServer) -> None:
    server.will(writes(TOKEN, TOKEN, END))
    async with Client(server.url, retries=NEVER) as client, client.stream(prompt="p") as stream:
        answer = await stream.answer()
    assert (answer.id, answer.text, answer.finish_reason) == ("r1", "xx", "stop")


async def test_an_error_at_its_end_is_raised(server: FakeServer) -> None:
    server.will(writes(TOKEN, FAILED))
    async with Client(server.url, retries=QUICK) as client, client.stream(prompt="p") as stream:
        assert isinstance(await anext(stream), Token)
        with pytest.raises(RequestFailed, match="agent_lost"):
            await anext(stream)
    assert len(server.seen) == 1


@pytest.mark.parametrize("breaks", [False, True])
async def test_an_answer_without_an_end_is_none(server: FakeServer, breaks: bool) -> None:
    server.will(writes(TOKEN, breaks=breaks))
    async with Client(server.url, retries=QUICK) as client, client.stream(prompt="p") as stream:
        with pytest.raises(Unreachable):
            await stream.answer()
    assert len(server.seen) == 1


async def test_what_failed_before_it_began_is_tried_again(server: FakeServer) -> None:
    server.will(
        says({"error": ERROR}, status=503),
        writes(FAILED),
        writes(breaks=True),
        writes(TOKEN, END),
    )
    async with Client(server.url, retries=QUICK) as client, client.stream(prompt="p") as stream:
        assert len([event async for event in stream]) == 2
    assert len(server.seen) == 4
