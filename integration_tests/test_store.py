"""What the store keeps while daemons end: kill -9 of a balancer, and a PostgreSQL that stops."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import MODEL, Fleet, until
from integration_tests.nobody_else_notices.bystander import bystander
from tests.balancer.store.postgres import PostgresServer

WISHED = {"name": "demo", "source": MODEL.absolute().as_uri(), "slots": 2, "context_size": 512}
LARGER = WISHED | {"context_size": 1024}


async def put(fleet: Fleet, *models: dict[str, Any]) -> tuple[int, Any]:
    url = f"{fleet.management}/api/v1/desired-state"
    async with fleet.http.put(url, json={"models": models}) as response:
        return response.status, await response.json()


async def wished(fleet: Fleet) -> list[Any]:
    async with fleet.http.get(f"{fleet.management}/api/v1/desired-state") as response:
        models: list[Any] = (await response.json())["models"]
        return models


async def until_served(fleet: Fleet, *, context_size: int, num_agents: int = 2) -> None:
    async def served() -> bool:
        agents = await fleet.view("agents")
        ready = [agent for agent in agents if agent["state"] == "ready" and agent["model"]]
        return [a["model"]["context_size"] for a in ready] == [context_size] * num_agents

    await until(served)


async def test_a_balancer_killed_during_a_roll_goes_on_with_it(
    fleet: Fleet, tmp_path: Path
) -> None:
    state = f"sqlite:///{tmp_path}/state.db"
    await fleet.start_balancer(state=state)
    for _ in range(2):
        await fleet.start_agent(model=None, slots=None, context_size=None)
    assert (await put(fleet, WISHED))[0] == 200
    await until_served(fleet, context_size=512)
    for agent in fleet.agents:
        agent.pace.keep_out()  # so that the roll is not over before the balancer is
    assert (await put(fleet, LARGER))[0] == 200

    async def has_begun() -> bool:
        return any(len(agent.engine_pids) == 2 for agent in fleet.agents)

    await until(has_begun)
    fleet.balancer.signal(signal.SIGKILL)
    await fleet.balancer.exit_code()
    await fleet.restart_balancer(
        state=state,
    )
    assert [model["context_size"] for model in await wished(fleet)] == [1024]
    for agent in fleet.agents:
        agent.pace.let_in()
    await until_served(fleet, context_size=1024)
    loads = [len(agent.engine_pids) for agent in fleet.agents]
    assert loads == [2, 2], "once for each wish, and not for the balancer's end"


@pytest.fixture
async def postgres() -> AsyncIterator[PostgresServer]:
    server = await asyncio.to_thread(PostgresServer)
    try:
        await asyncio.to_thread(server.start)
        yield server
    finally:
        await asyncio.to_thread(server.remove)


async def test_a_store_that_is_away_stops_changes_and_no_streams(
    fleet: Fleet, postgres: PostgresServer
) -> None:
    await fleet.start_balancer(state=await asyncio.to_thread(postgres.database))
    await fleet.start_agent(context_size=LONG_CONTEXT)
    unloaded = WISHED | {"agents": {"labels": {"gpu": "yes"}}}
    assert (await put(fleet, unloaded))[0] == 200
    async with bystander(fleet) as stream:
        await asyncio.to_thread(postgres.stop)
        status, answer = await put(fleet)
        assert (status, answer["error"]["code"]) == (503, "store_unavailable")
        assert answer["error"]["retryable"]
        assert [model["name"] for model in await wished(fleet)] == ["demo"], "as it was saved"
        await fleet.until_metrics(arriero_store_away=1)
        await stream.until_more()

        await asyncio.to_thread(postgres.start)

        async def is_back() -> bool:
            return (await put(fleet))[0] == 200

        await until(is_back)
        await fleet.until_metrics(arriero_store_away=0)
        assert await wished(fleet) == []
