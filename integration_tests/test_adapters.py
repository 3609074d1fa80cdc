"""An adapter beside the demo model, through both daemons: the muleteer calls its answers out."""

import asyncio

import pytest

from demo.conversations import ADAPTER, load_conversations, muleteer
from integration_tests.corpus import generate
from integration_tests.daemons import started_fleet, until

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
