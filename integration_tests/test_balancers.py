"""Two balancers over one PostgreSQL, with the same agents: what one is told, both do."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import MODEL, Daemon, Fleet, until
from integration_tests.nobody_else_notices.bystander import bystander
from tests.balancer.store.postgres import PostgresServer

WISHED = {
    "name": "demo",
    "source": MODEL.absolute().as_uri(),
    "slots": 2,
    "context_size": LONG_CONTEXT,
}


@pytest.fixture
async def postgres() -> AsyncIterator[PostgresServer]:
    server = await asyncio.to_thread(PostgresServer)
    try:
        await asyncio.to_thread(server.start)
        yield server
    finally:
        await asyncio.to_thread(server.remove)


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


async def post(fleet: Fleet, path: str) -> None:
    async with fleet.http.post(f"{fleet.management}/api/v1/{path}", json={}) as response:
        assert response.ok, await response.text()


async def until_served(fleet: Fleet, *, slots: int) -> None:
    async def is_served() -> bool:
        agents = await fleet.view("agents")
        return [a["slots"]["total"] for a in agents if a["state"] == "ready"] == [slots]

    await until(is_served, deadline=30.0)


async def until_state(fleet: Fleet, state: str) -> None:
    async def is_so() -> bool:
        return [agent["state"] for agent in await fleet.view("agents")] == [state]

    await until(is_so, deadline=10.0)


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
    await post(second, f"agents/{agent}/drain")
    await until_state(first, "drained")
    await post(first, f"agents/{agent}/resume")
    await until_state(second, "ready")

    endless = {"prompt": "Once", "max_tokens": 4000, "ignore_eos": True, "n_discard": 100}
    async with first.http.post(f"{first.inference}/api/v1/generate", json=endless) as response:
        begun = json.loads(await response.content.readline())
        (seen,) = await second.view("requests")
        assert (seen["id"], seen["balancer"], seen["state"]) == (begun["id"], "one", "streaming")
        slots = [each["slots"]["busy"] for each in await second.view("agents")]
        assert slots == [1], "whoever took it"
        url = f"{second.management}/api/v1/requests/{begun['id']}"
        async with second.http.get(url) as answer:
            assert (await answer.json())["agent"] == agent
        async with second.http.delete(url) as answer:
            assert answer.status == 202
        events = [json.loads(line) async for line in response.content]
    assert events[-1]["finish_reason"] == "cancelled"

    listed = {each["name"]: each for each in await second.view("balancers")}
    assert {name: each["leads"] for name, each in listed.items()} == {"one": True, "two": False}
    assert listed["two"]["is_here"] and listed["one"]["since"] < listed["two"]["since"]

    asked = {"input": "Once", "max_output_tokens": 4000, "background": True}
    async with first.http.post(f"{first.inference}/v1/responses", json=asked) as response:
        id = (await response.json())["id"]
    url = f"{second.inference}/v1/responses/{id}"

    async def is_known() -> bool:
        async with second.http.get(url) as response:
            return response.status == 200

    await until(is_known, deadline=10.0)
    async with second.http.post(f"{url}/cancel") as response:
        assert response.status == 200, await response.text()
        assert (await response.json())["status"] in ("cancelled", "completed")

    async with bystander(second) as stream:
        first.balancer.signal(signal.SIGKILL)
        await first.balancer.exit_code()
        await stream.until_more()
        await until_leading(second.balancer)
        await put(second, WISHED | {"slots": 1})
        await until_served(second, slots=1)
        await stream.until_more()
