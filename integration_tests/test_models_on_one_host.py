"""One agent serves several models side by side: each has an engine process and slots of its own."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

from integration_tests.corpus import generate, plain_cases
from integration_tests.daemons import MODEL, Daemon, Fleet, until

SOURCE = MODEL.absolute().as_uri()


def on_demand(name: str, slots: int) -> dict[str, Any]:
    common = {"name": name, "source": SOURCE, "context_size": 1024, "preload": False}
    return common | {"slots": slots}


async def put(fleet: Fleet, *models: dict[str, Any]) -> None:
    url = f"{fleet.management}/api/v1/desired-state"
    async with fleet.http.put(url, json={"models": models}) as response:
        assert response.status == 200, await response.text()


async def embed(fleet: Fleet, model: str) -> int:
    """How long a vector is."""
    url = f"{fleet.inference}/api/v1/embed"
    async with fleet.http.post(url, json={"model": model, "input": ["a mule"]}) as response:
        body = await response.json()
        assert response.status == 200, body
        return len(body["embeddings"][0])


async def served(fleet: Fleet) -> dict[str, int]:
    """The slots of each model that the only host serves."""
    [agent] = await fleet.view("agents")
    ready = [each for each in agent["models"] if each["state"] == "ready"]
    assert agent["slots"]["total"] == sum(each["slots"]["total"] for each in ready)
    assert all(each["memory_needed"] > 0 for each in ready)
    return {each["name"]: each["slots"]["total"] for each in ready}


def engines_of(agent: Daemon) -> list[int]:
    """The engine processes that live, in the order in which they were started."""
    return [pid for pid in agent.engine_pids if Path(f"/proc/{pid}").exists()]


async def test_the_least_recently_used_makes_room_and_nothing_is_lost(fleet: Fleet) -> None:
    """Three models and room for three: the fourth takes the place of one that nobody uses.

    Then the engine of one is killed: the others' streams go on, and it is started again.
    """
    await fleet.start_balancer()
    agent = await fleet.start_agent(model=None, slots=None, context_size=None, models_max=3)
    models = [on_demand(name, slots) for slots, name in enumerate(("chat", "titles", "last"), 1)]
    await put(fleet, *models, on_demand("embedder", 4))
    case = plain_cases()[0]
    for name in ("titles", "chat"):
        answer = await generate(fleet.http, fleet.inference, case.body | {"model": name})
        assert answer.text == case.answer, answer.end
    assert await embed(fleet, "embedder") > 0
    assert await served(fleet) == {"titles": 2, "chat": 1, "embedder": 4}
    assert len(engines_of(agent)) == 3

    is_over = False

    async def traffic() -> int:
        count = 0
        while not is_over:
            answer = await generate(fleet.http, fleet.inference, case.body | {"model": "chat"})
            assert answer.text == case.answer, answer.end
            count += await embed(fleet, "embedder") > 0
        return count

    clients = [asyncio.create_task(traffic()) for _ in range(2)]
    answer = await generate(fleet.http, fleet.inference, case.body | {"model": "last"})
    assert answer.text == case.answer, answer.end
    assert await served(fleet) == {"chat": 1, "embedder": 4, "last": 3}, "`titles` was used first"

    victim = agent.engine_pids[-1]  # that of `last`
    os.kill(victim, signal.SIGKILL)
    answer = await generate(fleet.http, fleet.inference, case.body | {"model": "last"})
    assert answer.text == case.answer, answer.end
    is_over = True
    assert min(await asyncio.gather(*clients)) > 0
    assert await served(fleet) == {"chat": 1, "embedder": 4, "last": 3}
    started = [json.loads(line) for line in agent.stderr if "the engine process starts" in line]
    assert len(started) == 5, "four models, one of which had to start again"

    await put(fleet)

    async def is_idle() -> bool:
        agents = await fleet.view(
            "agents"
        )  # none while the last engines have gone and nobody dialled
        return [(each["state"], each["models"]) for each in agents] == [("idle", [])]

    await until(is_idle)
    assert await agent.terminate() == 0
