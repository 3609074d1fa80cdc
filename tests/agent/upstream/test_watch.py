import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from arriero.agent.upstream.client import Client
from arriero.agent.upstream.health import MOST_REFUSED
from arriero.agent.upstream.protocol.address import ApiAddress
from arriero.agent.upstream.protocol.failures import UpstreamRefusal
from arriero.agent.upstream.watch import Watch
from tests.agent.fakes import soon
from tests.agent.upstream.scripted import MODEL, Scripted


class Watched:
    def __init__(self, scripted: Scripted, client: Client, name: str | None) -> None:
        self.scripted = scripted
        self.changes = 0
        self.changed = asyncio.Event()
        self.watch = Watch(client, name, self.on_change)

    def on_change(self) -> None:
        self.changes += 1
        self.changed.set()

    @property
    def num_probes(self) -> int:
        return len(self.scripted.seen)

    @property
    def issue(self) -> tuple[str, str]:
        [issue] = self.watch.issues
        return issue.code, issue.message


@asynccontextmanager
async def watched(name: str | None = None, key_file: Path | None = None) -> AsyncIterator[Watched]:
    async with (
        Scripted().serving() as scripted,
        Client(ApiAddress.of(scripted.url), key_file) as client,
    ):
        yield Watched(scripted, client, name)


async def test_it_finds_out_what_a_server_is_and_can_do() -> None:
    async with watched() as it:
        await it.watch.check()
        server, known = it.watch.server, it.watch.known
        assert server is not None
        assert known is not None
        shown = {"messages", "prompt", "token_ids", "logprobs", "tools", "forced_calls"}
        assert shown | {"json_schema", "ignore_eos", "regex", "tokenize"} <= server.abilities
        assert server.counts_at_end
        assert (known.info.name, known.info.context_size) == ("m", 64)
        assert known.info.tasks == ("generate", "vision", "audio", "embed")
        assert (it.watch.issues, it.changes) == ((), 1)


async def test_what_is_known_is_not_tried_again() -> None:
    async with watched() as it:
        await it.watch.check()
        tried = it.num_probes
        await it.watch.check()
        assert (it.num_probes, it.changes) == (tried, 1)


async def test_another_model_is_tried_anew() -> None:
    async with watched() as it:
        await it.watch.check()
        it.scripted.models = [{**MODEL, "id": "other", "owned_by": "library"}]
        await it.watch.check()
        assert it.watch.known is not None
        assert (it.watch.known.info.name, it.watch.known.server.dialect.kind) == ("other", "ollama")
        assert it.changes == 2


@pytest.mark.parametrize("goes_on", [True, False])
async def test_whether_it_goes_on_with_an_answer_is_tried(goes_on: bool) -> None:
    async with watched() as it:
        it.scripted.models = [{**MODEL, "owned_by": "sglang"}]
        it.scripted.goes_on = goes_on
        await it.watch.check()
        known = it.watch.known
        assert known is not None
        assert ("continue_final_message" in known.server.abilities) == goes_on
        assert (known.info.fingerprint is not None) == goes_on


async def test_fields_that_it_refuses_are_left_out() -> None:
    async with watched() as it:
        it.scripted.refuses = {
            "seed": "unknown field",
            "stream_options": "unknown field",
            "tools": "not supported",
            "image_url": "no pictures",
            "max_tokens": "use max_completion_tokens",
        }
        await it.watch.check()
        assert it.watch.server is not None
        assert it.watch.server.refused == {"seed"}
        assert not it.watch.server.counts_at_end
        assert "messages" in it.watch.server.abilities
        assert not {"tools", "forced_calls", "vision"} & it.watch.server.abilities


async def test_a_server_that_goes_and_comes_back() -> None:
    async with watched() as it:
        await it.watch.check()
        it.scripted.status = 503
        await it.watch.check()
        assert it.watch.server is None
        assert it.watch.known is not None  # balancers go on to hear of its model
        assert it.issue[0] == "upstream_unreachable"
        assert "not now" in it.issue[1]
        it.scripted.status = 200
        tried = it.num_probes
        await it.watch.check()
        assert it.watch.server is not None
        assert it.num_probes > tried  # it may be another version now


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_refused(status: int) -> None:
    async with watched() as it:
        it.scripted.status = status
        await it.watch.check()
        assert it.issue[0] == "upstream_key"
        assert "it refuses the key of --upstream-key-file" in it.issue[1]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_refused_for_requests_alone(status: int) -> None:
    async with watched() as it:
        it.scripted.status_of_posts = status
        await it.watch.check()
        assert (it.watch.known, it.issue[0]) == (None, "upstream_key")


@pytest.mark.parametrize(("status", "code"), [(401, "upstream_key"), (429, "upstream_limit")])
async def test_a_server_that_refuses_every_request_is_away(status: int, code: str) -> None:
    async with watched() as it:
        task = asyncio.create_task(it.watch.run())
        await soon(it.changed.wait())
        it.changed.clear()
        it.scripted.status_of_posts = status
        for _ in range(MOST_REFUSED):
            assert it.watch.server is not None
            it.watch.refused(UpstreamRefusal(status, b""))
        assert it.watch.server is None
        assert it.issue[0] == code
        it.scripted.status_of_posts = 200
        it.changed.clear()
        await soon(it.changed.wait())  # it takes a probe again
        assert it.watch.server is not None
        task.cancel()


@pytest.mark.parametrize("num", [0, 1, 5])
@pytest.mark.parametrize("status", [401, 429, 503, 529])
async def test_a_server_that_takes_requests_from_now_on_is_tried_as_a_whole(
    num: int, status: int
) -> None:
    """Else it would be taken for one that can do less."""
    async with watched() as it:
        it.scripted.next_statuses = [*([200] * num), status]
        await it.watch.check()
        assert it.watch.known is None
        await it.watch.check()
        assert it.watch.server is not None
        assert {"messages", "prompt", "token_ids", "json_schema"} <= it.watch.server.abilities


async def test_a_key_that_cannot_be_read(tmp_path: Path) -> None:
    async with watched(key_file=tmp_path / "none") as it:
        await it.watch.check()
        assert it.issue[0] == "upstream_key"
        assert it.scripted.keys == []


async def test_a_model_that_it_does_not_have() -> None:
    async with watched("other") as it:
        await it.watch.check()
        code, message = it.issue
        assert (code, it.watch.known) == ("upstream_model", None)
        assert message.endswith("--upstream-model: it has no model other; it has m")
        assert message.startswith(f"the upstream server at {it.scripted.url[7:]}: ")


async def test_a_server_without_a_list_serves_the_model_that_is_named() -> None:
    async with watched("m") as it:
        it.scripted.models = []
        it.scripted.status = 404
        await it.watch.check()
        code, message = it.issue  # everything else is not found either
        assert code == "upstream_model"
        assert "supports neither chat, nor completion, nor embeddings" in message


async def test_a_suspicion_has_it_look_at_once() -> None:
    async with watched() as it:
        task = asyncio.create_task(it.watch.run())
        await soon(it.changed.wait())
        it.changed.clear()
        it.scripted.status = 503
        it.watch.suspect()
        await soon(it.changed.wait())
        assert it.watch.server is None
        it.scripted.status = 200
        it.changed.clear()
        await soon(it.changed.wait())  # after a pause, by itself
        assert it.watch.server is not None
        task.cancel()


async def test_a_server_that_is_away_is_not_asked_for_each_request() -> None:
    async with watched() as it:
        it.scripted.status = 503
        task = asyncio.create_task(it.watch.run())
        await soon(it.changed.wait())
        asked = len(it.scripted.keys)
        for _ in range(20):
            it.watch.suspect()
            await asyncio.sleep(0)
        assert len(it.scripted.keys) == asked
        task.cancel()


async def test_one_that_asks_for_a_pause_is_there_again_afterwards_as_before() -> None:
    async with watched() as it:
        task = asyncio.create_task(it.watch.run())
        await soon(it.changed.wait())
        asked, tried = len(it.scripted.keys), it.num_probes
        it.changed.clear()
        it.watch.refused(UpstreamRefusal(429, b"too many", 0.1))
        assert (it.watch.server, it.issue[0]) == (None, "upstream_limit")
        it.changed.clear()
        await soon(it.changed.wait())  # after the pause, by itself
        assert it.watch.server is not None
        assert (len(it.scripted.keys), it.num_probes) == (asked + 1, tried)
        task.cancel()


async def test_a_look_that_is_refused_with_a_pause() -> None:
    async with watched() as it:
        it.scripted.status, it.scripted.retry_after = 429, "30"
        task = asyncio.create_task(it.watch.run())
        await soon(it.changed.wait())
        assert it.issue[0] == "upstream_limit"
        assert it.watch._health.next_check - it.watch._clock() > 20
        task.cancel()
