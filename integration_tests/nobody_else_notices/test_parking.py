"""A long prefix is parked for another prompt, saved and restored, beside a stream.

How much is copied before each step is shown where it is counted, by the tests of the KV cache.
"""

from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from integration_tests.corpus import generate
from integration_tests.daemons import Fleet, until
from integration_tests.nobody_else_notices.bystander import bystander

PARKED = "arriero_agent_parked_cells"
CELLS = 6144
MOST = 0.6
"""The part of all cells that each of two prompts takes: there is never room for both."""


async def parked_cells(fleet: Fleet) -> float:
    async with fleet.http.get(f"{fleet.management}/metrics") as response:
        families = text_string_to_metric_families(await response.text())
    return sum(one.value for family in families for one in family.samples if one.name == PARKED)


async def ask(fleet: Fleet, word: str, **fields: Any) -> dict[str, int]:
    """How many tokens the prompt has, and how many of them were cached."""
    body = {"prompt": [ord(word)] * int(MOST * CELLS), "max_tokens": 1, "temperature": 0}
    end = (await generate(fleet.http, fleet.inference, body | fields)).end
    assert end["event"] == "done", end
    return dict(end["usage"])


async def test_streams_go_on_while_a_prefix_makes_room(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.start_balancer()
    await fleet.start_agent(context_size=CELLS, kv_cells=CELLS, cache_dir=tmp_path)
    async with bystander(fleet):
        assert (await ask(fleet, "a", cache_key="k", save_cache=True))["cached_tokens"] == 0
        assert (await ask(fleet, "b"))["cached_tokens"] == 0

        async def is_parked() -> bool:
            return await parked_cells(fleet) > 0

        await until(is_parked, deadline=5.0)
        again = await ask(fleet, "a")
        assert again["cached_tokens"] == again["prompt_tokens"] - 1
