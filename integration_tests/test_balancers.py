"""Balancers over one PostgreSQL, with the same agents: what one is told, all do."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from integration_tests.corpus import ENDLESS, LONG_CONTEXT
from integration_tests.daemons import MODEL, Daemon, Fleet, until
from integration_tests.hosts import NAME, Hosts
from integration_tests.nobody_else_notices.bystander import bystander
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


async def said(fleet: Fleet, **more: str) -> str:
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
    await said(second, previous_response_id=await said(first, previous_response_id=id))

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
