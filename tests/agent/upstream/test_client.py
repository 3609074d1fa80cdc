import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from arriero.agent.upstream import client as module
from arriero.agent.upstream.client import Client, KeyFileError
from arriero.agent.upstream.protocol.address import ApiAddress
from arriero.agent.upstream.protocol.failures import UpstreamFault, UpstreamLost, UpstreamRefusal
from tests.agent.fakes import soon
from tests.agent.upstream.scripted import Scripted
from tests.waiting import HANGS, given_time, until

BODY = {"model": "m"}


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Scripted]:
    async with Scripted().serving() as scripted:
        yield scripted


async def test_it_asks_and_reads(server: Scripted) -> None:
    async with Client(ApiAddress.of(server.url)) as client:
        assert b'"m"' in await client.get(f"{server.url}/v1/models", within=HANGS)
        assert b"yes" in await client.post(f"{server.url}/v1/chat/completions", BODY, within=HANGS)
    assert server.keys == [None, None]


async def test_it_shows_its_key_and_reads_it_anew(server: Scripted, tmp_path: Path) -> None:
    file = tmp_path / "key"
    async with Client(ApiAddress.of(server.url), file) as client:
        for key in ("one", "two\n"):
            file.write_text(key)
            await client.read_key()
            await client.get(f"{server.url}/v1/models", within=HANGS)
    assert server.keys == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize("text", ["", "two words\nlines", "schlüssel", "x" * 5000])
async def test_a_file_that_holds_no_key_is_named_without_what_is_in_it(
    text: str, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    async with Client(ApiAddress.of("http://127.0.0.1:1"), file) as client:
        with pytest.raises(KeyFileError) as caught:
            await client.read_key()
    assert str(caught.value) == f"--upstream-key-file: {file} must contain one key on one line"


async def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    async with Client(ApiAddress.of("http://127.0.0.1:1"), tmp_path / "none") as client:
        with pytest.raises(KeyFileError, match=r"cannot read .*none: No such file"):
            await client.read_key()


async def test_a_refusal_has_the_servers_words_but_never_the_key(
    server: Scripted, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("secret-5")
    server.status = 400
    async with Client(ApiAddress.of(server.url), file) as client:
        await client.read_key()
        with pytest.raises(UpstreamRefusal) as caught:
            await client.post(f"{server.url}/v1/chat/completions", BODY, within=HANGS)
    assert (caught.value.status, caught.value.message) == (400, "not now, Bearer (key)")


async def test_redirects_are_not_followed(server: Scripted) -> None:
    server.status = 307
    async with Client(ApiAddress.of(server.url)) as client:
        with pytest.raises(UpstreamRefusal) as caught:
            await client.post(f"{server.url}/v1/chat/completions", BODY, within=HANGS)
    assert caught.value.is_servers
    assert len(server.seen) == 1


async def test_nobody_listens() -> None:
    async with Scripted().serving() as scripted:
        url = scripted.url
    async with Client(ApiAddress.of(url)) as client:
        with pytest.raises(UpstreamLost, match="cannot be reached: Connection refused") as caught:
            await client.get(f"{url}/v1/models", within=HANGS)
    assert caught.value.is_certain


async def test_a_silent_server_may_only_be_slow(server: Scripted) -> None:
    server.is_stuck = True
    url = f"{server.url}/v1/chat/completions"
    async with Client(ApiAddress.of(server.url)) as client, given_time() as time:
        asked = asyncio.create_task(client.post(url, {"stream": True}, within=20.0))
        await until(server.has_begun.is_set)
        await time.passes(19.0)
        assert not asked.done()
        await time.passes(1.0)
        with pytest.raises(UpstreamLost, match=r"did not answer within 20 s") as caught:
            await asked
    assert not caught.value.is_certain


async def test_to_leave_a_stream_closes_its_connection(server: Scripted) -> None:
    server.is_stuck = True
    url = f"{server.url}/v1/chat/completions"
    async with Client(ApiAddress.of(server.url)) as client:
        async with client.stream(url, {"stream": True}) as data:
            assert b"Hel" in await soon(anext(data))
        await soon(server.was_left.wait())


async def test_an_answer_that_breaks_off(server: Scripted) -> None:
    server.breaks_off = True
    url = f"{server.url}/v1/chat/completions"
    async with Client(ApiAddress.of(server.url)) as client:
        with pytest.raises(UpstreamLost):
            async with client.stream(url, {"stream": True}) as data:
                async for _ in data:
                    pass


async def test_answers_are_bounded(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DOCUMENT", 20)
    async with Client(ApiAddress.of(server.url)) as client:
        with pytest.raises(UpstreamFault, match="longer than 20 bytes"):
            await client.get(f"{server.url}/v1/models", within=HANGS)


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("2", 2.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)
def test_how_long_a_server_wants_to_be_left_alone(told: str | None, seconds: float | None) -> None:
    assert module._retry_after(told, 100.0) == seconds


async def test_a_refusal_says_when_to_come_again(server: Scripted) -> None:
    server.status, server.retry_after = 429, "7"
    async with Client(ApiAddress.of(server.url)) as client:
        with pytest.raises(UpstreamRefusal) as caught:
            await client.post(f"{server.url}/v1/chat/completions", BODY, within=HANGS)
    assert (caught.value.retry_after, caught.value.asks_for_pause) == (7.0, True)
