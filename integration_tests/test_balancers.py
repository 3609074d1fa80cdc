"""Balancers over one PostgreSQL, with the same agents: what one is told, all do."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import asyncpg
import pytest

from arriero.balancer.access.access_key import digest_of, new_key
from arriero.balancer.cluster.notifications import SUBJECTS, Changed, encoded
from arriero.balancer.store.database import CHANNEL
from arriero.balancer.store.url import parse_store_url
from integration_tests.corpus import ENDLESS, LONG_CONTEXT
from integration_tests.daemons import MODEL, Daemon, Fleet, until
from integration_tests.hosts import NAME, Hosts
from integration_tests.nobody_else_notices.bystander import bystander
from integration_tests.test_access import HALVES, HalfSent
from tests.balancer.store.postgres import PostgresServer

WISHED = {
    "name": "demo",
    "source": MODEL.absolute().as_uri(),
    "slots": 2,
    "context_size": LONG_CONTEXT,
}


SHIFTING = {"n_discard": 64}
"""An answer goes on beyond the ceiling of its slot: it has no end."""

IN_BACKGROUND = {"input": "Once", "ignore_eos": True, "background": True} | SHIFTING


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


class Pair:
    """Two balancers; `first` led first."""

    def __init__(self, first: Fleet, second: Fleet) -> None:
        self.first, self.second = first, second

    @property
    def urls(self) -> list[str]:
        return [each.management.replace("http", "ws", 1) for each in (self.first, self.second)]


async def put(fleet: Fleet, *models: dict[str, Any]) -> None:
    url = f"{fleet.management}/api/v1/desired-state"
    async with fleet.http.put(url, json={"models": models}) as response:
        assert response.status == 200, await response.text()


async def post(fleet: Fleet, path: str, **body: Any) -> None:
    async with fleet.http.post(f"{fleet.management}/api/v1/{path}", json=body) as response:
        assert response.ok, await response.text()


async def begin_in_background(first: Fleet, second: Fleet) -> str:
    """The id of a response that the first one runs and the second one knows."""
    async with first.http.post(f"{first.inference}/v1/responses", json=IN_BACKGROUND) as response:
        id: str = (await response.json())["id"]

    async def is_known() -> bool:
        async with second.http.get(f"{second.inference}/v1/responses/{id}") as response:
            return response.status == 200

    await until(is_known)
    return id


async def cancelled(fleet: Fleet, id: str) -> str:
    """The status of a response after it was cancelled."""
    url = f"{fleet.inference}/v1/responses/{id}/cancel"
    async with fleet.http.post(url) as response:
        assert response.status == 200, await response.text()
        status: str = (await response.json())["status"]
        return status


QUESTION = {"role": "user", "content": "And then?"}


async def said(fleet: Fleet, **more: Any) -> str:
    """The id of a response that is not in the background."""
    body = {"input": "And then?", "max_output_tokens": 4} | more
    async with fleet.http.post(f"{fleet.inference}/v1/responses", json=body) as response:
        assert response.status == 200, await response.text()
        id: str = (await response.json())["id"]
        return id


async def until_served(fleet: Fleet, *, slots: int) -> None:
    async def is_served() -> bool:
        agents = await fleet.view("agents")
        return [a["slots"]["total"] for a in agents if a["state"] == "ready"] == [slots]

    await until(is_served)


async def until_state(fleet: Fleet, state: str) -> None:
    async def is_so() -> bool:
        return [agent["state"] for agent in await fleet.view("agents")] == [state]

    await until(is_so)


async def until_leading(balancer: Daemon) -> None:
    await balancer.until_line(balancer.stderr, "this balancer leads")


@pytest.fixture
async def pair(fleet: Fleet, postgres: PostgresServer) -> AsyncIterator[Pair]:
    state = await asyncio.to_thread(postgres.database)
    await fleet.start_balancer(state=state, balancer_name="one")
    await until_leading(fleet.balancer)
    async with AsyncExitStack() as stack:
        other = fleet.guest(stack)
        await other.start_balancer(state=state, balancer_name="two")
        yield Pair(fleet, other)


async def test_what_one_balancer_is_told_both_do_and_the_second_leads_when_the_first_is_killed(
    pair: Pair,
) -> None:
    first, second = pair.first, pair.second
    await first.start_agent(balancer=pair.urls, model=None, slots=None, context_size=None)
    await put(second, WISHED)
    await until_served(first, slots=2)
    await until_served(second, slots=2)

    agent = (await first.view("agents"))[0]["id"]
    async with first.http.post(
        f"{first.inference}/api/v1/generate", json=ENDLESS | SHIFTING
    ) as response:
        begun = json.loads(await response.content.readline())
        await post(second, f"agents/{agent}/drain", deadline="100ms")
        await until_state(first, "drained")
        (seen,) = await second.view("requests")
        assert (seen["id"], seen["state"]) == (begun["id"], "queued"), "the deadline is all's"
        await post(first, f"agents/{agent}/resume")
        await until_state(second, "ready")
        await second.until_num_requests(1, "streaming")

        (seen,) = await second.view("requests")
        assert (seen["id"], seen["balancer"]) == (begun["id"], "one")
        slots = [each["slots"]["busy"] for each in await second.view("agents")]
        assert slots == [1], "whoever took it"
        url = f"{second.management}/api/v1/requests/{begun['id']}"
        async with second.http.get(url) as answer:
            assert (await answer.json())["agent"] == agent
        async with second.http.delete(url) as answer:
            assert answer.status == 202
        events = [json.loads(line) async for line in response.content]
    assert events[-1]["finish_reason"] == "cancelled"
    assert events[-1]["timings"]["moves"] == 1

    listed = {each["name"]: each for each in await second.view("balancers")}
    assert {name: each["leads"] for name, each in listed.items()} == {"one": True, "two": False}
    assert listed["two"]["is_here"] and listed["one"]["since"] < listed["two"]["since"]

    url = f"{second.management}/api/v1/requests?state=ended"
    async with second.http.get(url) as answer:
        (ended,) = (await answer.json())["requests"]
    assert (ended["id"], ended["code"]) == (begun["id"], "cancelled")
    assert ended["balancer"] == "one"

    id = await begin_in_background(first, second)
    assert await cancelled(second, id) == "cancelled"
    id = await said(second, previous_response_id=id)
    id = await said(first, previous_response_id=id)
    await said(second, previous_response_id=id)
    answer = f"msg_{id.removeprefix('resp_')}_0"
    await said(second, input=[{"type": "item_reference", "id": answer}, QUESTION])

    left = await begin_in_background(first, second)
    async with asyncio.TaskGroup() as tasks, bystander(second) as stream:
        first.balancer.signal(signal.SIGKILL)
        await first.balancer.exit_code()
        cancelling = tasks.create_task(cancelled(second, left))
        await stream.until_more()
        await until_leading(second.balancer)
        await put(second, WISHED | {"slots": 1})
        await until_served(second, slots=1)
        await stream.until_more()
    assert cancelling.result() == "cancelled", "nobody ran it when that was said"


ADMIN = new_key(b"a" * 32)
KEYED = {"Authorization": f"Bearer {ADMIN}"}


class Stranger:
    """May connect to the database of the balancers, and has no right on any table."""

    def __init__(self, state: str) -> None:
        self._url = parse_store_url(state)
        self.heard: list[str] = []

    async def __aenter__(self) -> Self:
        url = self._url
        owner = await asyncpg.connect(
            host=url.host, user=url.user, password=url.password, database=url.database
        )
        await owner.execute("CREATE ROLE stranger LOGIN PASSWORD 'x'")
        await owner.close()
        self._connection = await asyncpg.connect(
            host=url.host, user="stranger", password="x", database=url.database
        )
        await self._connection.add_listener(CHANNEL, lambda *told: self.heard.append(told[-1]))
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._connection.close()

    async def tell(self, **notification: object) -> None:
        await self._connection.execute(
            "SELECT pg_notify($1, $2)", CHANNEL, json.dumps(notification)
        )


async def made(fleet: Fleet, name: str, role: str) -> str:
    """A new key."""
    url, body = f"{fleet.management}/api/v1/keys", {"name": name, "role": role}
    async with fleet.http.post(url, json=body, headers=KEYED) as answer:
        assert answer.status == 201
        return str((await answer.json())["key"])


async def logged_in(fleet: Fleet) -> dict[str, str]:
    """What a page of the dashboard sends."""
    url = f"{fleet.management}/api/v1/session"
    async with fleet.http.post(url, json={"key": ADMIN}) as answer:
        csrf = (await answer.json())["csrf"]
        cookie = answer.cookies["arriero_session"].value
    return {"x-arriero-csrf": csrf, "Cookie": f"arriero_session={cookie}"}


async def status(fleet: Fleet, method: str, path: str, headers: dict[str, str]) -> int:
    async with fleet.http.request(method, fleet.management + path, headers=headers) as answer:
        return answer.status


async def test_keys_and_sessions_end_at_all_balancers_and_no_stranger_to_the_tables_has_one(
    fleet: Fleet, postgres: PostgresServer, tmp_path: Path
) -> None:
    (tmp_path / "admin.key").write_text(ADMIN)
    state = await asyncio.to_thread(postgres.database)
    started: dict[str, object] = {"state": state, "admin_key_file": tmp_path / "admin.key"}
    await fleet.start_balancer(**started, balancer_name="one")
    await until_leading(fleet.balancer)
    async with AsyncExitStack() as stack:
        second = fleet.guest(stack)
        await second.start_balancer(**started, balancer_name="two")
        stranger = await stack.enter_async_context(Stranger(state))
        agent = await made(fleet, "rack", "agent")
        urls = Pair(fleet, second).urls
        await fleet.start_agent(balancer=urls, env={"ARRIERO_AGENT_KEY": agent})
        leaver, visitor = await made(fleet, "leaver", "admin"), await logged_in(fleet)
        assert await status(second, "GET", "/api/v1/agents", visitor) == 200, "at once"

        stream = await fleet.http.post(
            f"{fleet.inference}/api/v1/generate", json=ENDLESS | SHIFTING, headers=KEYED
        )
        async with stream:
            id = json.loads(await stream.content.readline())["id"]
            by_key = HalfSent(second, HALVES[0], {"x-api-key": leaver})
            by_session = HalfSent(second, HALVES[0], visitor)
            await by_key.begun()
            await by_session.begun()

            forged = {"token": digest_of("x" * 43), "digest": digest_of(ADMIN), "csrf": "c"}
            await stranger.tell(type="session", name="admin-key-file", until=2e9, **forged)
            await stranger.tell(type="cancel_request", id=id)
            await stranger.tell(
                type="asked", id="q", by="r", what="cancel", about=f'{{"id":"{id}"}}'
            )
            stolen = {"Cookie": f"arriero_session={'x' * 43}"}
            assert await status(second, "GET", "/api/v1/agents", stolen) == 401
            url = f"{second.management}/api/v1/requests"

            async def asks_the_other() -> bool:
                async with second.http.get(url, headers=KEYED) as answer:
                    body = await answer.json()
                if body.get("missing"):
                    return False  # it did not answer within a second
                (seen,) = body["requests"]
                assert (seen["id"], seen["balancer"]) == (id, "one"), "they ask one another"
                return True

            await until(asks_the_other)

            assert await status(fleet, "DELETE", "/api/v1/keys/leaver", KEYED) == 200
            assert await by_key.status() == 401
            assert await status(fleet, "DELETE", "/api/v1/session", visitor) == 200
            assert await by_session.status() == 401
            assert await status(second, "GET", "/api/v1/agents", visitor) == 401
            for _ in range(3):
                assert b"text" in await stream.content.readline(), "it goes on"

        ours = {encoded(Changed(what)) for what in SUBJECTS}
        assert encoded(Changed("mail")) in stranger.heard
        others = [json.loads(text)["type"] for text in stranger.heard if text not in ours]
        assert others == ["session", "cancel_request", "asked"], "its own"


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path / "hosts")


async def test_an_agent_follows_a_name_whose_addresses_change(
    hosts: Hosts, fleet: Fleet, postgres: PostgresServer
) -> None:
    state = await asyncio.to_thread(postgres.database)
    shared: dict[str, object] = {"state": state, "allowed_host": NAME}
    await fleet.start_balancer(**shared, balancer_name="one")
    port = fleet.balancer.ready["management"].rpartition(":")[2]
    async with AsyncExitStack() as stack:

        async def started(name: str, address: str) -> Fleet:
            other = fleet.guest(stack)
            await other.start_balancer(
                **shared, balancer_name=name, management_addr=f"{address}:{port}"
            )
            return other

        hosts.name("127.0.0.1", "127.0.0.2")
        agent = await fleet.launch_agent(
            prefix=hosts.prefix,
            balancer=f"ws://{NAME}:{port}",
            slots=2,
            context_size=LONG_CONTEXT,
        )
        second, third = await asyncio.gather(
            started("two", "127.0.0.2"), started("three", "127.0.0.3")
        )
        await until_served(fleet, slots=2)
        await until_served(second, slots=2)
        assert await third.view("agents") == []

        async with bystander(fleet) as stream:
            hosts.name("127.0.0.1", "127.0.0.3")
            assert await second.balancer.terminate() == 0
            await until_served(third, slots=2)
            left = await agent.until_line(agent.stderr, "leaving a balancer")
            assert json.loads(left)["address"] == "127.0.0.2"
            await stream.until_more()
