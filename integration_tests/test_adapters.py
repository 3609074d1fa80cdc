"""An adapter beside the demo model, through both daemons: the muleteer calls its answers out."""

import asyncio
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from demo.conversations import ADAPTER, load_conversations, muleteer
from integration_tests.corpus import ENDLESS, generate
from integration_tests.daemons import MODEL, Fleet, started_fleet, until
from tests.agent.models.file_server import Served, file_server

pytestmark = pytest.mark.asyncio(loop_scope="session")

ANSWER = next(one.answer for one in load_conversations() if one.id == "basics-001")


async def test_an_adapter_is_a_model_of_its_own_and_leaves_the_base_alone() -> None:
    async with started_fleet(adapter=f"muleteer={ADAPTER}", threads=1) as fleet:

        async def answer(**more: object) -> str:
            messages = [{"role": "user", "content": "What is Arriero?"}]
            body = {"messages": messages, "temperature": 0}
            told = await generate(fleet.http, fleet.inference, body | more)
            assert told.status == 200, told
            return told.text

        listed = ["arriero-demo", "arriero-demo:muleteer"]

        async def are_listed() -> bool:
            """An agent tells of its adapters right after it was let in."""
            async with fleet.http.get(f"{fleet.inference}/v1/models") as response:
                return [model["id"] for model in (await response.json())["data"]] == listed

        await until(are_listed)
        answers = await asyncio.gather(
            *(answer(model=name) for name in (*listed, *listed)),
            answer(adapters=[{"name": "muleteer"}]),
        )
        plain, called = ANSWER, muleteer(ANSWER)
        assert answers == [plain, called, plain, called, called]

        async def ended() -> dict[str, int]:
            url = f"{fleet.management}/api/v1/history?by=model&since=5m&step=1m"
            async with fleet.http.get(url) as response:
                lines = (await response.json())["lines"]
            return {line["name"]: sum(map(sum, line["ended"].values())) for line in lines}

        async def are_counted_apart() -> bool:
            return await ended() == {listed[0]: 2, listed[1]: 3}

        await until(are_counted_apart)


async def test_adapters_come_and_go_while_the_model_stays(
    bare_fleet: Fleet, tmp_path: Path
) -> None:
    """Streams go on meanwhile: the engine process that has the model loads and unloads them."""
    fleet = bare_fleet
    await fleet.start_agent(model=None, slots=3, context_size=512)
    base = {"name": "demo", "source": MODEL.absolute().as_uri()}
    calling = {"name": "muleteer", "source": ADAPTER.absolute().as_uri()}
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(ADAPTER.read_bytes()[:5000])

    async def wish(*adapters: dict[str, Any]) -> None:
        models = [base | {"adapters": adapters}]
        url = f"{fleet.management}/api/v1/desired-state"
        async with fleet.http.put(url, json={"models": models}) as response:
            assert response.status == 200, await response.text()

    async def answer(model: str) -> str:
        messages = [{"role": "user", "content": "What is Arriero?"}]
        body = {"messages": messages, "temperature": 0, "model": model}
        told = await generate(fleet.http, fleet.inference, body)
        assert told.status == 200, told
        return told.text

    async def status_of(name: str) -> dict[str, Any]:
        models = await fleet.view("models")
        return next((each for each in models if each["name"] == name), {"agents": []})

    torn = {"name": "torn", "source": broken.as_uri()}
    await wish(torn)
    assert (await answer("demo")) == ANSWER, "the model is served without it"

    async def is_refused() -> bool:
        body = {"prompt": "x", "model": "demo:torn"}
        async with fleet.http.post(f"{fleet.inference}/api/v1/generate", json=body) as response:
            text = await response.text()
            return response.status == 404 and "adapter `torn`" in text and "cannot be used" in text

    await until(is_refused)
    assert (await status_of("demo"))["status"] == "loaded"
    assert (await status_of("demo:torn"))["status"] == "failed"

    await wish()
    (agent,) = await fleet.view("agents")
    endless = ENDLESS | {"model": "demo", "n_discard": 64}
    stream = asyncio.create_task(generate(fleet.http, fleet.inference, endless))

    async def is_fetched() -> bool:
        adapted = await status_of("demo:muleteer")
        return adapted["agents"] == [agent["id"]] and adapted["progress"] is not None

    with file_server() as server:
        held = Served(ADAPTER.read_bytes(), held=Event(), held_after=1000)
        await wish(calling | {"source": server.serve("/muleteer.gguf", held)})
        await until(is_fetched)
        assert (await status_of("demo:muleteer"))["status"] == "loading", "not its model's status"
        assert (await status_of("demo"))["status"] == "loaded"
        assert held.held is not None
        held.held.set()
        assert (await answer("demo:muleteer")) == muleteer(ANSWER), "it waits for its adapter"
        assert (await status_of("demo:muleteer"))["status"] == "loaded"

    await wish(calling)
    assert (await answer("demo")) == ANSWER

    await wish(calling, torn)

    async def has_failed() -> bool:
        issues = (await status_of("demo")).get("issues", [])
        return any("adapter `torn`" in issue["message"] for issue in issues)

    await until(has_failed)
    assert (await answer("demo:muleteer")) == muleteer(ANSWER), "the rest is as it was"

    await wish()

    async def is_gone() -> bool:
        return not (await status_of("demo:muleteer"))["agents"]

    await until(is_gone)
    assert (await answer("demo")) == ANSWER
    assert not stream.done(), "it went on all the while"
    stream.cancel()
    (same,) = await fleet.view("agents")
    assert same["connected_seconds"] > agent["connected_seconds"], "no other process took over"
