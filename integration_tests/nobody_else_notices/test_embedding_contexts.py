"""Clients that alternate the pooling of their embeddings: one context serves them all."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from integration_tests.daemons import Fleet, until
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed

pytestmark = pytest.mark.asyncio(loop_scope="session")

CELLS = "arriero_agent_embedding_cells"


async def embedding_cells(fleet: Fleet) -> float:
    async with fleet.http.get(f"{fleet.management}/metrics") as response:
        families = text_string_to_metric_families(await response.text())
    return sum(one.value for family in families for one in family.samples if one.name == CELLS)


async def embed(fleet: Fleet, text: str, pooling: str) -> None:
    body = {"input": [text], "pooling": pooling}
    async with fleet.http.post(f"{fleet.inference}/api/v1/embed", json=body) as response:
        assert response.status == 200, await response.text()


async def test_alternating_poolings_share_one_small_context(long_fleet: Fleet) -> None:
    async def attack(seen: Bystander) -> None:
        for pooling in ("mean", "cls", "last") * 3:
            await embed(long_fleet, "a stone in the shoe of a llama", pooling)

        async def are_told() -> bool:
            return await embedding_cells(long_fleet) > 0

        await until(are_told)
        cells = await embedding_cells(long_fleet)
        # One for inputs of up to 512 tokens with a chunk of 512, and not for the whole context.
        assert cells <= 1024

    await unnoticed(long_fleet, attack)
