"""An adapter beside the demo model, through both daemons: the muleteer calls its answers out."""

import asyncio
from typing import Any

import pytest

from demo.conversations import ADAPTER, load_conversations, muleteer
from integration_tests.corpus import generate
from integration_tests.daemons import MODEL, Fleet, started_fleet, until

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

        await until(are_listed, deadline=10.0)
        answers = await asyncio.gather(
            *(answer(model=name) for name in (*listed, *listed)),
            answer(adapters=[{"name": "muleteer"}]),
        )
        plain, called = ANSWER, muleteer(ANSWER)
        assert answers == [plain, called, plain, called, called]


async def test_an_adapter_comes_and_goes_with_the_desired_state(bare_fleet: Fleet) -> None:
    fleet = bare_fleet
    await fleet.start_agent(model=None, slots=2, context_size=512)
    base = {"name": "demo", "source": MODEL.absolute().as_uri()}
    adapter = {"name": "muleteer", "source": ADAPTER.absolute().as_uri()}

    async def wish(*models: dict[str, Any]) -> None:
        url = f"{fleet.management}/api/v1/desired-state"
        async with fleet.http.put(url, json={"models": models}) as response:
            assert response.status == 200, await response.text()

    async def answer(model: str) -> str:
        messages = [{"role": "user", "content": "What is Arriero?"}]
        body = {"messages": messages, "temperature": 0, "model": model}
        told = await generate(fleet.http, fleet.inference, body)
        assert told.status == 200, told
        return told.text

    async def statuses() -> dict[str, tuple[str, int]]:
        models = await fleet.view("models")
        return {each["name"]: (each["status"], len(each["agents"])) for each in models}

    await wish(base | {"adapters": [adapter]})
    answers = await asyncio.gather(answer("demo:muleteer"), answer("demo"))
    assert answers == [muleteer(ANSWER), ANSWER]
    assert await statuses() == {"demo": ("loaded", 1), "demo:muleteer": ("loaded", 1)}

    await wish(base)

    async def is_gone() -> bool:
        return (await statuses()).get("demo:muleteer", ("unloaded", 0)) == ("unloaded", 0)

    await until(is_gone, deadline=20.0)
    assert await answer("demo") == ANSWER
    await wish()
